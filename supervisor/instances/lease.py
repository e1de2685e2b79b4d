"""The lease: who holds which device, and what a new launch may have. Pure, over the records.

There is nothing else to ask: a device is held by the records that claim it, so the mapping passed
in must hold every record whose handle is not known to be gone. Only records of this host count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from msgspec import UNSET

from supervisor.contracts.device import AcceleratorInfo, LeaseHolder
from supervisor.contracts.host import SELF, Accelerator, DeviceId
from supervisor.contracts.instance import InstanceRecord

Holders = dict[DeviceId, tuple[LeaseHolder, ...]]


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


def holders(records: Mapping[str, InstanceRecord]) -> Holders:
    """Every held device and its holders, the longest first. Devices no probe sees are there too."""
    found: dict[DeviceId, list[LeaseHolder]] = {}
    for record in records.values():
        if record.node_id == SELF:
            for device in record.devices:
                found.setdefault(device, []).append(_holder(record))
    return {
        device: tuple(sorted(held, key=lambda holder: (holder.since, holder.name)))
        for device, held in found.items()
    }


def _holder(record: InstanceRecord) -> LeaseHolder:
    """A record that says nothing of sharing (none of ours is without) shares with nobody."""
    supervision = record.supervision
    claimed = None if supervision is UNSET else supervision.memory_bytes
    return LeaseHolder(
        name=record.name,
        nonce=record.nonce,
        exclusive=supervision is UNSET or supervision.exclusive,
        since=record.started_at,
        memory_bytes=UNSET if claimed is None else claimed,
    )


def grant(
    claim: Claim,
    offered: Sequence[AcceleratorInfo],
    records: Mapping[str, InstanceRecord],
    *,
    accelerator: Accelerator,
    withheld: Mapping[DeviceId, str] = MappingProxyType({}),
) -> Grant | Refusal | InvalidClaim:
    """Choose devices for a claim. ``accelerator`` is the host's, which a choice by count stays in;
    another's (``cpu:0`` on a GPU host) is had by name only. ``withheld`` devices go to nobody,
    each for the reason it maps to, such as a record that could not be read.
    """
    known = {device.id: device for device in offered}
    if claim.devices is None:
        asked = [device for device in offered if device.accelerator == accelerator]
    else:
        asked = [known[name] for name in claim.devices if name in known]
    if problem := _problem(claim, asked):
        return InvalidClaim(problem)

    need = claim.count if claim.devices is None else len(claim.devices)
    exclusive = claim.exclusive
    if exclusive is None:
        exclusive = not (asked and all(map(memory_is_hosts, asked)))
    on_host = sum(map(memory_is_hosts, asked))
    books = _Books(holders(records), known, need, shares=max(1, min(need, on_host)))
    admitted = [
        device
        for device in asked
        if device.id not in withheld and books.admits(device.id, exclusive)
    ]
    free = [device for device in admitted if books.fits(device, claim.memory_bytes)]
    if len(free) >= need:
        if claim.devices is None:
            free = sorted(free, key=books.preference)[:need]
        return Grant(tuple(device.id for device in free), exclusive)

    # With enough devices but for the memory, the memory is what is short.
    short = claim.memory_bytes if len(admitted) >= need else None
    return Refusal(
        need=need,
        free=len(free),
        detail=_explain(claim, accelerator, asked, free, books, withheld),
        need_bytes=short,
        free_bytes=None if short is None else books.largest_claim(admitted),
    )


def memory_is_hosts(device: AcceleratorInfo) -> bool:
    """Whether a device's memory is the host's own, so that being alone on it means little."""
    return device.unified_memory or device.accelerator in ("cpu", "metal")


@dataclass(frozen=True, slots=True)
class _Books:
    """Who holds what, and how much memory that leaves."""

    held: Holders
    known: Mapping[DeviceId, AcceleratorInfo]
    need: int
    shares: int
    """How many of the needed devices draw on the host's memory."""

    def admits(self, device: DeviceId, exclusive: bool) -> bool:
        """Any holder keeps an exclusive claim out, an exclusive holder keeps everyone out."""
        present = self.held.get(device, ())
        return not present or not (exclusive or any(holder.exclusive for holder in present))

    def unclaimed(self, device: AcceleratorInfo) -> int | None:
        """Bytes that no holder claims; ``None`` where the device does not tell its size.

        Devices that use the host's memory have one budget, for their memory is the same memory.
        """
        if device.memory_total_bytes is None:
            return None
        one_budget = [device.id]
        if memory_is_hosts(device):
            one_budget = [other.id for other in self.known.values() if memory_is_hosts(other)]
        claimed = sum(
            holder.memory_bytes
            for name in one_budget
            for holder in self.held.get(name, ())
            if holder.memory_bytes is not UNSET
        )
        return max(0, device.memory_total_bytes - claimed)

    def room(self, device: AcceleratorInfo) -> int | None:
        """The largest claim on it, when the launch claims the same on all the devices it needs."""
        unclaimed = self.unclaimed(device)
        if unclaimed is None or not memory_is_hosts(device):
            return unclaimed
        return unclaimed // self.shares

    def fits(self, device: AcceleratorInfo, memory_bytes: int | None) -> bool:
        room = self.room(device)
        return memory_bytes is None or room is None or memory_bytes <= room

    def largest_claim(self, devices: Sequence[AcceleratorInfo]) -> int | None:
        """What as many of these devices as are needed could each have taken."""
        rooms = [room for device in devices if (room := self.room(device)) is not None]
        boundless = len(devices) - len(rooms)
        return sorted(rooms, reverse=True)[self.need - boundless - 1]

    def preference(self, device: AcceleratorInfo) -> tuple[int, int, int]:
        """Most unclaimed memory first, then fewest holders, then as the host counts them."""
        return (-(self.unclaimed(device) or 0), len(self.held.get(device.id, ())), device.index)


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
    return None


def _explain(
    claim: Claim,
    accelerator: Accelerator,
    asked: Sequence[AcceleratorInfo],
    free: Sequence[AcceleratorInfo],
    books: _Books,
    withheld: Mapping[DeviceId, str],
) -> str:
    names = [device.id for device in asked]
    absent = [name for name in claim.devices or () if name not in names]
    parts = [f"{name} is not on this host" for name in absent]
    for device in asked:
        if device not in free:
            held = ", ".join(map(_tell, books.held.get(device.id, ())))
            facts = []
            if not books.fits(device, claim.memory_bytes):
                facts.append(f"has {books.room(device)} bytes to claim")
            if held:
                facts.append(f"is held by {held}")
            if device.id in withheld:
                facts.append(f"is withheld: {withheld[device.id]}")
            parts.append(f"{device.id} {', '.join(facts)}")
    kind = f"{accelerator} devices" if claim.devices is None else "named devices"
    rest = f": {'; '.join(parts)}" if parts else ""
    return f"{len(free)} of {len(asked) + len(absent)} {kind} can be had, {books.need} needed{rest}"


def _tell(holder: LeaseHolder) -> str:
    return f"{holder.name} (exclusive)" if holder.exclusive else holder.name
