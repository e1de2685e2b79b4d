"""Who computes on our devices and is none of ours.

The vendor's driver names the processes on each device. Of those, what an instance's tree holds is
ours, and so is what keeps the marks of a record that cannot be read; the rest is somebody else's.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import anyio
from msgspec.structs import replace

from supervisor.contracts.device import DeviceProcess, DeviceSnapshot
from supervisor.contracts.host import DeviceId
from supervisor.instances.lease import Foreign
from supervisor.launchers.base import CannotTellError
from supervisor.launchers.process.procfs import read_nonce, read_stat
from supervisor.lifecycle.house import House
from supervisor.lifecycle.instance import Instance
from supervisor.lifecycle.quarantine import Quarantine
from supervisor.patience import Overdue

LOOK_S = 2.0
"""For ``/proc``, in which a process that is stuck in a driver can hold a reader up."""


@dataclass(frozen=True, slots=True)
class Passport:
    """What ``/proc`` says of a process that a driver named."""

    name: str
    nonce: str | None


class Strangers:
    """Looks once a snapshot, however many ask. Used on the event loop only."""

    def __init__(
        self, house: House, instances: Callable[[], Iterable[Instance]], quarantine: Quarantine
    ) -> None:
        self._house = house
        self._instances = instances
        self._quarantine = quarantine
        self._looking = anyio.Lock()
        self._latest: tuple[DeviceSnapshot, Foreign] | None = None

    async def among(self, snapshot: DeviceSnapshot) -> Foreign:
        """Of each device that strangers compute on, who they are."""
        seen = computing(snapshot)
        if not seen:
            return {}
        async with self._looking:
            if self._latest is None or self._latest[0] is not snapshot:
                self._latest = snapshot, await self._sort(seen)
            return self._latest[1]

    async def _sort(self, seen: Mapping[DeviceId, tuple[DeviceProcess, ...]]) -> Foreign:
        pids = {process.pid for those in seen.values() for process in those}
        passports = await self._passports(pids)
        nonces = {instance.record.nonce for instance in self._instances()}
        ours = self._quarantine.pids | {
            pid for pid, passport in passports.items() if passport and passport.nonce in nonces
        }
        unjudged: set[DeviceId] = set()
        if any(passports.get(pid, _UNSEEN) for pid in pids - ours):
            ours, unjudged = await self._trees(ours)
        return {
            device: strange
            for device, those in seen.items()
            if device not in unjudged and (strange := tuple(_strange(those, ours, passports)))
        }

    async def _trees(self, ours: set[int]) -> tuple[set[int], set[DeviceId]]:
        """With the pids of every tree, titles rewritten or not; and the devices of instances whose
        tree nobody can tell, on which nobody is called a stranger.
        """
        found, unjudged = set(ours), set[DeviceId]()

        async def look(instance: Instance) -> None:
            try:
                found.update(member.pid for member in await instance.tree())
            except (CannotTellError, anyio.ClosedResourceError):
                unjudged.update(instance.record.devices)

        async with anyio.create_task_group() as looks:
            for instance in tuple(self._instances()):
                looks.start_soon(look, instance)
        return found, unjudged

    async def _passports(self, pids: Collection[int]) -> dict[int, Passport | None]:
        """``None`` for one that is gone; nothing at all of any where a look does not come back."""
        try:
            return await self._house.meeting.run(_read, pids, within_s=LOOK_S)
        except Overdue:
            return {}


_UNSEEN = Passport(name="", nonce=None)


def computing(snapshot: DeviceSnapshot) -> dict[DeviceId, tuple[DeviceProcess, ...]]:
    """Of each device, who computes on it. Who only draws (a display server) is nobody's reason."""
    return {
        device.id: those
        for device in snapshot.accelerators
        if (those := tuple(it for it in device.processes or () if not it.graphics_only))
    }


def _strange(
    those: Iterable[DeviceProcess], ours: set[int], passports: Mapping[int, Passport | None]
) -> Iterable[DeviceProcess]:
    for process in those:
        passport = passports.get(process.pid, _UNSEEN)
        if process.pid not in ours and passport is not None:
            yield process if process.name else replace(process, name=passport.name or None)


def _read(pids: Collection[int]) -> dict[int, Passport | None]:
    """Blocking. A driver may name one a moment after it has ended: that one is nobody any more."""
    found: dict[int, Passport | None] = {}
    for pid in pids:
        stat = read_stat(pid)
        alive = stat is not None and stat.alive
        found[pid] = Passport(stat.name, read_nonce(pid)) if stat and alive else None
    return found
