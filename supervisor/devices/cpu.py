"""``cpu:0``: every host has a device that can be leased."""

import psutil

from supervisor.contracts.device import AcceleratorInfo
from supervisor.devices.probe import ProbeAnswer

CPU_DEVICE = "cpu:0"


class CpuProbe:
    """The processor as one device, whose memory is the host's own."""

    def __init__(self, model: str) -> None:
        self._model = model

    def sample(self) -> ProbeAnswer:
        memory = psutil.virtual_memory()
        return ProbeAnswer(
            accelerators=(
                AcceleratorInfo(
                    id=CPU_DEVICE,
                    index=0,
                    vendor="unknown",
                    name=self._model,
                    accelerator="cpu",
                    memory_total_bytes=memory.total,
                    memory_used_bytes=memory.total - memory.available,
                    unified_memory=True,
                    utilization_pct=psutil.cpu_percent(interval=None),
                    temperature_c=None,
                    power_watts=None,
                    power_limit_watts=None,
                    driver=None,
                ),
            ),
            capabilities=frozenset({"memory", "utilization"}),
        )
