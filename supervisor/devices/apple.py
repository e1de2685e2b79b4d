"""Apple's GPU: part of the processor, on the host's memory, and never more than one."""

import platform
import subprocess
import sys
from collections.abc import Callable

from supervisor.contracts.device import AcceleratorInfo
from supervisor.devices.probe import ProbeAnswer

METAL_DEVICE = "metal:0"
_PATIENCE_S = 2.0


def sysctl(name: str) -> str | None:
    """One of the kernel's values; ``None`` where there is no such."""
    try:
        told = subprocess.run(
            ["/usr/sbin/sysctl", "-n", name],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None


class AppleProbe:
    """``metal:0`` on Apple silicon, and nothing anywhere else."""

    def __init__(
        self,
        *,
        system: str = sys.platform,
        machine: str = platform.machine(),
        sysctl: Callable[[str], str | None] = sysctl,
    ) -> None:
        self._here = system == "darwin" and machine == "arm64"
        self._name = sysctl("machdep.cpu.brand_string") if self._here else None

    def sample(self) -> ProbeAnswer:
        if not self._here:
            return ProbeAnswer(state="absent")
        return ProbeAnswer(
            accelerators=(
                AcceleratorInfo(
                    id=METAL_DEVICE,
                    index=0,
                    vendor="apple",
                    name=self._name or "Apple GPU",
                    accelerator="metal",
                    memory_total_bytes=None,
                    memory_used_bytes=None,
                    unified_memory=True,
                    utilization_pct=None,
                    temperature_c=None,
                    power_watts=None,
                    power_limit_watts=None,
                    driver=None,
                ),
            ),
            capabilities=("memory",),
            host_memory=(METAL_DEVICE,),
        )
