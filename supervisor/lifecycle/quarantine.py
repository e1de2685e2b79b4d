"""Records that cannot be read or are lost, and the devices they keep from everybody.

What cannot be read frees nothing. A process that still carries the lost record's marks keeps its
devices; so does a record of which no process is found, for an engine can wipe its marks out, and
one that says nothing at all keeps every device that nobody claims, until a person releases it. It
holds nothing where its engine is gone for certain: it was never started, or by a machine that was
restarted since, or it had a cgroup, and nobody is in there.

A cgroup that we made for an engine, which lives in it and has no record at all, is such a case too.
Nothing of it is ever ended by us, for nobody can say any more what it was to do.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from supervisor.contracts.device import AcceleratorInfo, Withholding
from supervisor.contracts.event import Event, RecordQuarantined, Warning_
from supervisor.contracts.host import DeviceId
from supervisor.instances.books import memory_is_hosts
from supervisor.instances.loading import Quarantined
from supervisor.launchers.base import Bearer, CannotTellError, Launcher, Stray
from supervisor.lifecycle.house import House

RECHECK_S = 10.0


@dataclass(slots=True)
class Case:
    """One unreadable file and what is known about its instance."""

    item: Quarantined
    boot_id: str
    """Of this run of the machine."""
    bearers: tuple[Bearer, ...] = ()
    looked: bool = field(default=False)
    doubtful: bool = field(default=False)
    """Somebody who may know of it could not be asked."""

    @property
    def alive(self) -> bool:
        """For all that is known: what cannot be told frees nothing."""
        return bool(self.bearers) or self.doubtful

    @property
    def gone(self) -> bool:
        """Nothing of it lives, for certain."""
        item = self.item
        if self.alive or not self.looked:
            return False
        if item.reason in ("not-a-file", "lost") or not item.started:
            return True
        other_boot = item.boot_id is not None and item.boot_id != self.boot_id
        return other_boot or (item.confined and item.nonce is not None)

    @property
    def mute(self) -> bool:
        """Nothing tells whose devices these were: neither the file nor a process."""
        return not self.gone and self.item.devices is None and not self.devices

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        """The devices that are, or may be, in use."""
        if self.gone:
            return ()
        told = [device for bearer in self.bearers for device in bearer.devices]
        return tuple(dict.fromkeys([*(self.item.devices or ()), *told]))


class Quarantine:
    """The cases of one state directory. Used on the event loop only."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._cases: list[Case] = []
        self.unasked: list[Launcher] = []
        """Launchers that could not tell yet who lives without a record."""

    def admit(self, items: Iterable[Quarantined], strays: Iterable[Stray]) -> None:
        """What loading the state directory could not read, and what it knows nothing about."""
        boot_id = self._house.clock.boot_id
        self._cases = [Case(item, boot_id) for item in (*map(_lost, strays), *items)]

    def add(self, strays: Iterable[Stray]) -> None:
        """What showed only later."""
        boot_id = self._house.clock.boot_id
        self._cases += [Case(_lost(stray), boot_id) for stray in strays]

    async def look(self) -> None:
        """Look at each case once, and report it."""
        for case in tuple(self._cases):
            if not case.looked:
                await self._look(case)
                self._house.publish(_news(case.item))

    async def watch(self) -> None:
        """Go on looking while one may still be alive."""
        await self.look()
        while any(case.alive for case in self._cases):
            await anyio.sleep(RECHECK_S)
            for case in tuple(self._cases):
                if case.alive:
                    await self._look(case)

    def bars(self, name: str) -> bool:
        """Whether an engine of this name may be running that no record tells about."""
        return any(case.alive or not case.looked for case in self._of(name))

    def withheld(
        self, offered: Sequence[AcceleratorInfo], claimed: Iterable[DeviceId]
    ) -> Mapping[DeviceId, tuple[Withholding, ...]]:
        """Devices that go to nobody, each with the reasons."""
        reasons: dict[DeviceId, tuple[Withholding, ...]] = {}
        taken = set(claimed)
        for case in self._cases:
            name, certain = _shown(case.item.name), case.devices
            if case.mute or not case.looked:
                certain = tuple(
                    device.id
                    for device in offered
                    if device.id not in taken and not memory_is_hosts(device)
                )
            for device in certain:
                why = Withholding(
                    name=name,
                    reason=f"the record of {name} cannot be read; once its engine is gone for "
                    f"certain, free the device with `enginectl release {name}`",
                )
                reasons[device] = (*reasons.get(device, ()), why)
        return reasons

    @property
    def pids(self) -> set[int]:
        """Living processes that carry the marks of a case."""
        return {bearer.process.pid for case in self._cases for bearer in case.bearers}

    def __contains__(self, name: str) -> bool:
        return bool(self._of(name))

    async def release(self, name: str) -> tuple[DeviceId, ...]:
        """A person vouches that nothing of it runs: forget the file and what it held."""
        freed: list[DeviceId] = []
        for case in self._of(name):
            if case.item.reason != "lost":
                await self._house.store.discard(case.item)
            self._cases.remove(case)
            freed += case.devices
        return tuple(dict.fromkeys(freed))

    def _of(self, name: str) -> list[Case]:
        """A name can have several: files of its earlier lives, and a cgroup without a record."""
        return [case for case in self._cases if _shown(case.item.name) == name]

    async def _look(self, case: Case) -> None:
        found: list[Bearer] = []
        doubtful = False
        for launcher in self._house.launchers.values():
            try:
                found += await launcher.bearers(case.item.name, case.item.nonce)
            except CannotTellError:
                doubtful = True
        case.doubtful = doubtful
        case.bearers = tuple(found)
        case.looked = True


def _lost(stray: Stray) -> Quarantined:
    detail = (
        f"an engine lives in {stray.place}, and there is no record of it; to end it: {stray.ending}"
    )
    return Quarantined(
        name=stray.name,
        path=Path(stray.place),
        reason="lost",
        detail=detail,
        nonce=None,
        devices=None,
        known=False,
    )


def _news(item: Quarantined) -> Event:
    if item.reason == "lost":
        return Warning_(instance=_shown(item.name), code="engine-lost", detail=_shown(item.detail))
    return RecordQuarantined(
        instance=_shown(item.name),
        path=_shown(str(item.path)),
        reason=_shown(f"{item.reason}: {item.detail}"),
    )


def _shown(text: str) -> str:
    """A file's name may hold bytes that are no text, and events are text."""
    return os.fsencode(text[:2_000]).decode("utf-8", "backslashreplace")
