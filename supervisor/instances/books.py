"""Who holds what on this host, and how much memory that leaves. Pure, over the records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET

from supervisor.contracts.device import AcceleratorInfo, LeaseHolder
from supervisor.contracts.host import SELF, DeviceId
from supervisor.contracts.instance import InstanceRecord
from supervisor.instances.choice import Candidate

Holders = dict[DeviceId, tuple[LeaseHolder, ...]]


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
    """A record that says nothing of sharing (a pin, or none of ours) shares with nobody."""
    supervision = record.supervision
    claimed = None if supervision is UNSET else supervision.memory_bytes
    return LeaseHolder(
        name=record.name,
        nonce=record.nonce,
        exclusive=supervision is UNSET or supervision.exclusive,
        since=record.started_at,
        memory_bytes=UNSET if claimed is None else claimed,
    )


def memory_is_hosts(device: AcceleratorInfo) -> bool:
    """Whether a device's memory is the host's own, so that being alone on it means little."""
    return device.unified_memory or device.accelerator in ("cpu", "metal")


def parent_of(device: AcceleratorInfo) -> DeviceId | None:
    """Of a slice (MIG), the whole."""
    return device.access.parent if device.access else None


def wholes_of(devices: Sequence[AcceleratorInfo]) -> dict[DeviceId, DeviceId]:
    """Of the slices among them, their wholes: what a record notes beside its devices."""
    return {it.id: whole for it in devices if (whole := parent_of(it)) is not None}


@dataclass(frozen=True, slots=True)
class Books:
    """The state of all leases at one moment."""

    held: Holders
    known: Mapping[DeviceId, AcceleratorInfo]
    wholes: Mapping[DeviceId, DeviceId]
    """Of each slice, as probes see it now or a record noted it: a lost slice is still a slice."""

    @classmethod
    def of(
        cls, offered: Sequence[AcceleratorInfo], records: Mapping[str, InstanceRecord]
    ) -> "Books":
        noted = [it.supervision.wholes for it in records.values() if it.supervision]
        wholes = {piece: whole for each in noted for piece, whole in each.items()}
        return cls(
            holders(records),
            {device.id: device for device in offered},
            wholes | wholes_of(offered),
        )

    def relatives(self, device: DeviceId) -> dict[DeviceId, Literal["whole", "slice"]]:
        """What is never used beside it: the whole of a slice, the slices of a whole."""
        found: dict[DeviceId, Literal["whole", "slice"]] = {
            piece: "slice" for piece, whole in self.wholes.items() if whole == device
        }
        if device in self.wholes:
            found[self.wholes[device]] = "whole"
        return found

    def is_sliced(self, device: DeviceId) -> bool:
        """As the probes see it now."""
        return any(parent_of(other) == device for other in self.known.values())

    def admits(self, device: DeviceId, exclusive: bool) -> bool:
        """Any holder keeps an exclusive claim out, an exclusive holder keeps everyone out, and
        whoever has the whole or a slice of it keeps everyone out of the other.
        """
        if any(self.held.get(other) for other in self.relatives(device)):
            return False
        present = self.held.get(device, ())
        return not present or not (exclusive or any(holder.exclusive for holder in present))

    def claimed(self, device: AcceleratorInfo) -> int:
        """Bytes that holders claim of the memory it has, or shares.

        Devices that use the host's memory have one budget, for their memory is the same memory.
        """
        one_budget = [device.id]
        if memory_is_hosts(device):
            one_budget = [other.id for other in self.known.values() if memory_is_hosts(other)]
        return sum(
            holder.memory_bytes
            for name in one_budget
            for holder in self.held.get(name, ())
            if holder.memory_bytes is not UNSET
        )

    def unclaimed(self, device: AcceleratorInfo) -> int | None:
        """Bytes that no holder claims; ``None`` where the device does not tell its size."""
        if device.memory_total_bytes is None:
            return None
        return max(0, device.memory_total_bytes - self.claimed(device))

    def room(self, device: AcceleratorInfo, shares: int) -> int | None:
        """The largest claim on it, where a launch claims the same on ``shares`` devices that use
        the host's memory.
        """
        unclaimed = self.unclaimed(device)
        if unclaimed is None or not memory_is_hosts(device):
            return unclaimed
        return unclaimed // shares

    def largest_claim(
        self, devices: Sequence[AcceleratorInfo], need: int, shares: int
    ) -> int | None:
        """What ``need`` of these devices could each have taken."""
        rooms = [room for it in devices if (room := self.room(it, shares)) is not None]
        boundless = len(devices) - len(rooms)
        return sorted(rooms, reverse=True)[need - boundless - 1]

    def candidate(self, device: AcceleratorInfo) -> Candidate:
        """Its free memory is what nobody claims, and not more than what nobody uses."""
        free, used = self.unclaimed(device), device.memory_used_bytes
        if free is not None and used is not None:
            free = min(free, max(0, (device.memory_total_bytes or 0) - used))
        topology = device.topology or None
        return Candidate(
            id=device.id,
            index=device.index,
            free_bytes=free,
            holders=len(self.held.get(device.id, ())),
            numa_node=topology.numa_node if topology else None,
            links=topology.links if topology else {},
        )
