"""Who is here, and who was: the instances of this host by name, and the tombstones of the ended.

Everything about a name is decided on the event loop without a wait in between. The records in the
instances are what holds devices and ports; this table is only where they are found.
"""

from collections.abc import Iterable

from supervisor.contracts.failure import AlreadyRunning
from supervisor.contracts.instance import InstanceRecord, InstanceView, Tombstone
from supervisor.lifecycle.errors import NoSuchInstance
from supervisor.lifecycle.instance import Instance
from supervisor.lifecycle.quarantine import Quarantine, unread
from supervisor.lifecycle.views import tombstone_view


class Roster:
    """Keeps ``most`` tombstones, the newest."""

    def __init__(self, quarantine: Quarantine, most: int) -> None:
        self._quarantine = quarantine
        self._most = most
        self._here: dict[str, Instance] = {}
        self._ended: dict[str, Tombstone] = {}

    def __len__(self) -> int:
        return len(self._here)

    def __contains__(self, name: str) -> bool:
        return name in self._here

    def here(self) -> tuple[Instance, ...]:
        return tuple(self._here.values())

    def get(self, name: str) -> Instance | None:
        return self._here.get(name)

    def records(self) -> dict[str, InstanceRecord]:
        return {name: instance.record for name, instance in self._here.items()}

    def taken(self, name: str) -> bool:
        """Whether a new instance may not have this name."""
        return name in self._here or self._quarantine.bars(name)

    def occupied(self, name: str) -> AlreadyRunning:
        """Why a new instance may not have this name."""
        if name not in self._here:
            for left in self._quarantine.unreadable(name):
                return AlreadyRunning(name=name, detail=unread(left))
        return AlreadyRunning(name=name)

    def remembers(self, name: str) -> bool:
        """Whether anything of that name is here, held or entombed."""
        return self.taken(name) or name in self._ended

    def enter(self, instance: Instance) -> Instance:
        self._here[instance.name] = instance
        self._ended.pop(instance.name, None)
        return instance

    def leave(self, name: str) -> None:
        self._here.pop(name, None)

    def recall(self, tombstones: Iterable[Tombstone]) -> None:
        """Those that an earlier daemon left, oldest first."""
        self._ended = {it.record.name: it for it in tombstones}

    def entomb(self, instance: Instance, tombstone: Tombstone) -> list[str]:
        """It has ended. The names that are forgotten for it."""
        name = instance.name
        if self._here.get(name) is instance:
            del self._here[name]
        self._ended.pop(name, None)
        self._ended[name] = tombstone
        forgotten = list(self._ended)[: max(0, len(self._ended) - self._most)]
        for old in forgotten:
            del self._ended[old]
        return forgotten

    def find(self, name: str, nonce: str | None = None) -> Instance | Tombstone:
        """The instance, else its tombstone; with a nonce only that very launch.

        Raises ``NoSuchInstance``.
        """
        for found in (self._here.get(name), self._ended.get(name)):
            if found is not None and nonce in (None, found.record.nonce):
                return found
        if nonce is not None and (name in self._here or name in self._ended):
            raise NoSuchInstance(f"that launch of {name} is over; another one has its name")
        for left in self._quarantine.unreadable(name):
            raise NoSuchInstance(unread(left))
        raise NoSuchInstance(f"no instance {name!r}; `enginectl ps -a` lists them")

    def views(self, *, ended: bool) -> tuple[InstanceView, ...]:
        views = [instance.view() for instance in self._here.values()]
        if ended:
            gone = (it for name, it in self._ended.items() if name not in self._here)
            views += [tombstone_view(tombstone) for tombstone in gone]
        return tuple(sorted(views, key=lambda view: view.record.name))
