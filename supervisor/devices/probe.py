"""What a device probe is: one vendor, one answer, and no exception for a missing driver."""

from dataclasses import dataclass
from typing import Protocol

from supervisor.contracts.device import AcceleratorInfo, TelemetryField


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """The devices of one kind, and which fields this kind of probe can fill at all."""

    accelerators: tuple[AcceleratorInfo, ...] = ()
    capabilities: frozenset[TelemetryField] = frozenset()


class Probe(Protocol):
    """Looks at one kind of device, now. May block: it is called in a worker thread."""

    def sample(self) -> ProbeAnswer: ...
