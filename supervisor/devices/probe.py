"""What a device probe is: one vendor, one answer, and no exception for a missing driver."""

from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import UNSET, UnsetType

from supervisor.contracts._base import Fact
from supervisor.contracts.device import AcceleratorInfo, TelemetryField, ThermalInfo
from supervisor.contracts.host import Accelerator, DeviceId


class ProbeAnswer(Fact, frozen=True, kw_only=True):
    """The devices of one kind at one moment. It travels as JSON where the probe is a child's."""

    accelerators: tuple[AcceleratorInfo, ...] = ()
    capabilities: tuple[TelemetryField, ...] = ()
    """The fields that at least one of its devices can fill."""
    state: Literal["ok", "absent", "failed"] = "ok"
    reason: str | UnsetType = UNSET
    """Why nothing, or not everything, could be said."""
    lost: tuple[str, ...] = ()
    """Devices that are there and do not work, a sentence each: no id can be had of some."""
    host_memory: tuple[DeviceId, ...] = ()
    """Devices of which it is certain that their memory is the host's, whose figures they get."""
    memory_nodes: tuple[int, ...] = ()
    """NUMA nodes that are device memory: the kernel counts them to the host's as well."""
    expects: Accelerator | UnsetType = UNSET
    """A driver of this kind is here although it cannot be asked: this is no CPU host."""
    thermals: tuple[ThermalInfo, ...] = ()


class Probe(Protocol):
    """Looks at one kind of device, now. May block: it is called in a worker thread."""

    def sample(self) -> ProbeAnswer: ...


class Question(Fact, frozen=True, kw_only=True):
    """A line to the probe process."""

    ask: tuple[str, ...]


class Reply(Fact, frozen=True, kw_only=True):
    """A line from it, one for each probe that was asked for."""

    probe: str
    answer: ProbeAnswer


def answered(devices: Iterable[AcceleratorInfo]) -> tuple[TelemetryField, ...]:
    """The fields that these devices fill; a field that nobody fills is no capability."""
    found: set[TelemetryField] = set()
    for device in devices:
        if device.memory_total_bytes is not None or device.unified_memory:
            found.add("memory")
        if device.utilization_pct is not None:
            found.add("utilization")
        if device.temperature_c is not None:
            found.add("temperature")
        if device.power_watts is not None or device.power_limit_watts is not None:
            found.add("power")
    return tuple(sorted(found))


def within(value: float | None, low: float, high: float) -> float | None:
    """A reading that can be true. Drivers answer with sentinels (0xFFFFFFFF) for "not known"."""
    return value if value is not None and low <= value <= high else None
