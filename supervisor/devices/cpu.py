"""``cpu:0``: every host has a device that can be leased."""

import time
from collections.abc import Callable

import psutil

from supervisor.contracts.device import AcceleratorInfo
from supervisor.devices.probe import ProbeAnswer

CPU_DEVICE = "cpu:0"
_SHORTEST_S = 0.1
"""Load over less than this says nothing."""


class CpuProbe:
    """The processor as one device, whose memory is the host's own."""

    def __init__(self, model: str, now: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._now = now
        self._load: float | None = None
        psutil.cpu_percent(interval=None)  # the next one tells of the time in between
        self._measured = now()

    def sample(self) -> ProbeAnswer:
        if self._now() - self._measured >= _SHORTEST_S:
            self._load, self._measured = psutil.cpu_percent(interval=None), self._now()
        return ProbeAnswer(
            accelerators=(
                AcceleratorInfo(
                    id=CPU_DEVICE,
                    index=0,
                    vendor="unknown",
                    name=self._model,
                    accelerator="cpu",
                    memory_total_bytes=None,
                    memory_used_bytes=None,
                    unified_memory=True,
                    utilization_pct=self._load,
                    temperature_c=None,
                    power_watts=None,
                    power_limit_watts=None,
                    driver=None,
                ),
            ),
            capabilities=("memory", "utilization"),
            host_memory=(CPU_DEVICE,),
        )
