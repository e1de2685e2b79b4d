"""Devices that the config declares and no probe sees. They are leased like any other."""

from collections.abc import Sequence

from msgspec import UNSET

from supervisor.contracts.config import StaticDevice
from supervisor.contracts.device import AcceleratorInfo, DeviceVendor
from supervisor.contracts.host import Accelerator
from supervisor.devices.probe import ProbeAnswer

_VENDORS: dict[Accelerator, DeviceVendor] = {
    "cuda": "nvidia",
    "rocm": "amd",
    "metal": "apple",
    "xpu": "intel",
    "cpu": "unknown",
}


class StaticProbe:
    """Answers with what the config says; nobody measures these, so their use is unknown."""

    def __init__(self, devices: Sequence[StaticDevice]) -> None:
        self._answer = ProbeAnswer(
            accelerators=tuple(
                AcceleratorInfo(
                    id=device.id,
                    index=index,
                    vendor=_VENDORS[device.accelerator],
                    name=device.id if device.name is UNSET else device.name,
                    accelerator=device.accelerator,
                    memory_total_bytes=None
                    if device.memory_bytes is UNSET
                    else device.memory_bytes,
                    memory_used_bytes=None,
                    unified_memory=device.accelerator in ("cpu", "metal"),
                    utilization_pct=None,
                    temperature_c=None,
                    power_watts=None,
                    power_limit_watts=None,
                    driver=None,
                )
                for index, device in enumerate(devices)
            )
        )

    def sample(self) -> ProbeAnswer:
        return self._answer
