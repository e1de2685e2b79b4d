"""What is told of devices: with their age, their place and the host's figures. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.device import (
    AcceleratorInfo,
    DeviceSnapshot,
    ProbeReport,
    ThermalInfo,
)
from supervisor.contracts.host import DeviceId
from supervisor.devices.cpu import CPU_DEVICE
from supervisor.devices.host import HostMemory
from supervisor.devices.prober import Held

TELLING_S = 60.0
"""What a device measured longer ago than this is not shown any more; that it is there, is."""


def outdated(known: DeviceSnapshot, age_s: float) -> DeviceSnapshot:
    """A snapshot that has to do because no newer one comes, marked with its age."""
    hangs = ProbeReport(
        probe="host",
        state="stale",
        reason=f"looking at this host hangs; what is shown is {age_s:.0f} s old",
    )
    age_ms = round(age_s * 1000)
    marked = (replace(it, age_ms=(it.age_ms or 0) + age_ms) for it in known.accelerators)
    devices = tuple(it if age_s <= TELLING_S else _blank(it) for it in marked)
    return replace(known, accelerators=devices, probes=(*known.probes, hangs))


def aged(held: Held) -> Iterable[AcceleratorInfo]:
    """The devices, marked with their age where they were not seen in this round."""
    if held.state != "stale":
        return held.answer.accelerators
    marked = [replace(it, age_ms=round(held.age_s * 1000)) for it in held.answer.accelerators]
    if held.age_s <= TELLING_S:
        return marked
    return map(_blank, marked)


def _blank(device: AcceleratorInfo) -> AcceleratorInfo:
    """Without readings, which are too old to mean anything; that it is there, still does."""
    return replace(
        device,
        memory_used_bytes=None,
        utilization_pct=None,
        temperature_c=None,
        power_watts=None,
        processes=UNSET,
    )


def placed(devices: Iterable[AcceleratorInfo], lost: tuple[str, ...]) -> Iterable[AcceleratorInfo]:
    """With the numbers that the vendor's runtime has for them, before any mask is applied: probes
    list as it does. Where one is lost nobody knows whether the runtime still counts it.
    """
    place = 0
    for device in devices:
        access = device.access
        if access is UNSET or access.parent is not None:
            yield device
        else:
            known = None if lost else place
            yield replace(device, access=replace(access, place=known))
            place += 1


def own_thermals(devices: Iterable[AcceleratorInfo]) -> Iterable[ThermalInfo]:
    """NVIDIA's driver is no hardware monitor of the kernel's; the others' are told of already."""
    for device in devices:
        if device.vendor == "nvidia" and device.temperature_c is not None:
            label = f"{device.name} {device.id}"
            yield ThermalInfo(label=label, celsius=device.temperature_c, source="gpu")


def filled(
    device: AcceleratorInfo,
    memory: HostMemory,
    thermals: Sequence[ThermalInfo],
    on_host: set[DeviceId],
) -> AcceleratorInfo:
    """With the host's figures, where the device's are the host's."""
    if device.id in on_host:
        used = memory.total - memory.available
        device = replace(device, memory_total_bytes=memory.total, memory_used_bytes=used)
    if device.id == CPU_DEVICE:
        heat = max((it.celsius for it in thermals if it.source == "cpu"), default=None)
        device = replace(device, temperature_c=heat)
    return device
