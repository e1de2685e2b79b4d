"""The lease: what a new launch may have. Pure, over the records.

There is nothing else to ask: a device is held by the records that claim it, so the mapping passed
in must hold every record whose handle is not known to be gone. Only records of this host count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from supervisor.contracts.config import ForeignPolicy
from supervisor.contracts.device import AcceleratorInfo, DeviceProcess, LeaseHolder
from supervisor.contracts.host import Accelerator, DeviceId
from supervisor.contracts.instance import InstanceRecord
from supervisor.instances.books import Books, memory_is_hosts, parent_of
from supervisor.instances.choice import choose

Foreign = Mapping[DeviceId, tuple[DeviceProcess, ...]]
"""Devices that somebody else computes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a launch asks for: these devices, or so many of the host's accelerator."""

    devices: tuple[DeviceId, ...] | None = None
    count: int = 1
    """Without ``devices``: the explicit count, else tensor times pipeline parallel."""
    exclusive: bool | None = None
    """``None`` is the default: alone on a card of its own memory, shared where it is the host's."""
    memory_bytes: int | None = None
    """On each of the devices. ``None`` claims nothing, which shared devices then cannot check."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What the record of the launch must say."""

    devices: tuple[DeviceId, ...]
    exclusive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Not now, or not on this host: devices or their memory are taken or absent."""

    need: int
    free: int
    """Devices among those asked for (all of the accelerator's, for a count) that could be had."""
    detail: str
    """Who holds the rest."""
    need_bytes: int | None = None
    """With ``free_bytes``, when memory is what is short: per device."""
    free_bytes: int | None = None
    """The largest claim that so many devices could have taken."""


@dataclass(frozen=True, slots=True)
class InvalidClaim:
    """Not on any host: the claim contradicts itself."""

    detail: str


def grant(
    claim: Claim,
    offered: Sequence[AcceleratorInfo],
    records: Mapping[str, InstanceRecord],
    *,
    accelerator: Accelerator,
    withheld: Mapping[DeviceId, str] = MappingProxyType({}),
    foreign: Foreign = MappingProxyType({}),
    policy: ForeignPolicy = "avoid",
) -> Grant | Refusal | InvalidClaim:
    """Choose devices for a claim. ``accelerator`` is the host's, which a choice by count stays in;
    another's (``cpu:0`` on a GPU host) is had by name only, and so are the whole of a sliced one
    and a processor's own GPU beside cards. ``withheld`` devices go to nobody, each for the reason
    it maps to, such as a record that could not be read. ``foreign`` ones go to whom ``policy``
    says.
    """
    books = Books.of(offered, records)
    if claim.devices is None:
        asked = [
            device
            for device in offered
            if device.accelerator == accelerator and not books.is_sliced(device.id)
        ]
        # A processor's own GPU has the most memory of all, the host's, and is much the slower.
        asked = [device for device in asked if not device.unified_memory] or asked
    else:
        asked = [books.known[name] for name in claim.devices if name in books.known]
    if problem := _problem(claim, asked):
        return InvalidClaim(problem)

    need = claim.count if claim.devices is None else len(claim.devices)
    exclusive = claim.exclusive
    if exclusive is None:
        exclusive = not (asked and all(map(memory_is_hosts, asked)))
    shares = max(1, min(need, sum(map(memory_is_hosts, asked))))
    strange = {} if policy == "allow" or (policy == "avoid" and claim.devices) else foreign
    desk = _Desk(claim, books, need, exclusive, shares, withheld, strange)
    admitted = [device for device in asked if not desk.bars(device.id)]
    free = [device for device in admitted if desk.fits(device)]
    if len(free) >= need:
        chosen = tuple(device.id for device in free)
        if claim.devices is None:
            chosen = choose([books.candidate(device) for device in free], need)
        return Grant(chosen, exclusive)

    # With enough devices but for the memory, the memory is what is short.
    short = claim.memory_bytes if len(admitted) >= need else None
    return Refusal(
        need=need,
        free=len(free),
        detail=desk.explain(accelerator, asked, free),
        need_bytes=short,
        free_bytes=None if short is None else books.largest_claim(admitted, need, shares),
    )


def _problem(claim: Claim, asked: Sequence[AcceleratorInfo]) -> str | None:
    if claim.memory_bytes is not None and claim.memory_bytes < 1:
        return "memoryBytes must be positive"
    if claim.devices is None:
        return None if claim.count > 0 else "a launch needs at least one device"
    if not claim.devices:
        return "the list of devices is empty"
    if twice := sorted({name for name in claim.devices if claim.devices.count(name) > 1}):
        return f"named twice: {', '.join(twice)}"
    if len(families := sorted({device.accelerator for device in asked})) > 1:
        return f"one launch cannot use devices of different kinds: {', '.join(families)}"
    for device in asked:
        if (whole := parent_of(device)) in claim.devices:
            return f"{device.id} is a slice of {whole}: name one or the other"
    return None


@dataclass(frozen=True, slots=True)
class _Desk:
    """One claim, looked at device by device."""

    claim: Claim
    books: Books
    need: int
    exclusive: bool
    shares: int
    withheld: Mapping[DeviceId, str]
    strange: Foreign

    def bars(self, device: DeviceId) -> bool:
        """Whether it cannot be had, however little memory of it is asked for."""
        withheld = any(it in self.withheld for it in (device, *self.books.relatives(device)))
        return withheld or bool(self._strangers(device)) or not self._admits(device)

    def fits(self, device: AcceleratorInfo) -> bool:
        room = self.books.room(device, self.shares)
        return self.claim.memory_bytes is None or room is None or self.claim.memory_bytes <= room

    def explain(
        self,
        accelerator: Accelerator,
        asked: Sequence[AcceleratorInfo],
        free: Sequence[AcceleratorInfo],
    ) -> str:
        names = [device.id for device in asked]
        absent = [name for name in self.claim.devices or () if name not in names]
        parts = [f"{name} is not on this host" for name in absent]
        parts += [f"{it.id} {', '.join(self._facts(it))}" for it in asked if it not in free]
        kind = f"{accelerator} devices" if self.claim.devices is None else "named devices"
        rest = f": {'; '.join(parts)}" if parts else ""
        total = len(asked) + len(absent)
        return f"{len(free)} of {total} {kind} can be had, {self.need} needed{rest}"

    def _admits(self, device: DeviceId) -> bool:
        return self.books.admits(device, self.exclusive)

    def _strangers(self, device: DeviceId) -> tuple[DeviceProcess, ...]:
        """On it, or on a slice of it: a whole is no emptier than its slices."""
        slices = [it for it, kin in self.books.relatives(device).items() if kin == "slice"]
        return tuple(who for it in (device, *slices) for who in self.strange.get(it, ()))

    def _facts(self, device: AcceleratorInfo) -> list[str]:
        """Why it cannot be had; everything that is true, for the first fact may not be the last."""
        books, facts = self.books, []
        if not self.fits(device):
            facts.append(f"has {books.room(device, self.shares)} bytes to claim")
        if held := books.held.get(device.id):
            facts.append(f"is held by {_names(held)}")
        for other, kin in books.relatives(device.id).items():
            if held := books.held.get(other):
                facts.append(f"has its {kin} {other} held by {_names(held)}")
        if strangers := self._strangers(device.id):
            facts.append(f"is used by {', '.join(map(told, strangers))}, none of ours")
        family = (device.id, *books.relatives(device.id))
        return facts + [f"is withheld: {self.withheld[it]}" for it in family if it in self.withheld]


def _names(held: Sequence[LeaseHolder]) -> str:
    return ", ".join(f"{it.name} (exclusive)" if it.exclusive else it.name for it in held)


def told(process: DeviceProcess) -> str:
    """A process in words."""
    return f"{process.name or 'a process'} (pid {process.pid})"
