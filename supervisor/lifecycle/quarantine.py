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
from supervisor.contracts.rpc import Unreadable
from supervisor.instances.books import memory_is_hosts
from supervisor.instances.loading import Quarantined
from supervisor.launchers.base import Bearer, CannotTellError, Launcher, Stray, Trace
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
    doubts: tuple[str, ...] = ()
    """Why those who may know of it could not tell."""

    @property
    def alive(self) -> bool:
        """For all that is known: what cannot be told frees nothing."""
        return bool(self.bearers or self.doubts)

    @property
    def gone(self) -> bool:
        """Nothing of it lives, for certain."""
        item = self.item
        if self.alive or not self.looked:
            return False
        if item.reason in ("not-a-file", "lost") or not item.started:
            return True
        other_boot = item.boot_id is not None and item.boot_id != self.boot_id
        return other_boot or (item.cgroup is not None and item.nonce is not None)

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
        self._first_looks = anyio.Lock()
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
        async with self._first_looks:
            for case in tuple(self._cases):
                if not case.looked:
                    await self._look(case)
                    self._house.publish(_news(case.item))

    async def watch(self) -> None:
        """Go on looking while one may still be alive, or may turn up."""
        await self.look()
        while self.unasked or any(case.alive for case in self._cases):
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
            name, certain = shown(case.item.name), case.devices
            if case.mute or not case.looked:
                certain = tuple(
                    device.id
                    for device in offered
                    if device.id not in taken and not memory_is_hosts(device)
                )
            why = Withholding(
                name=name,
                reason=f"the record of {name} cannot be read; once its engine is gone for "
                f"certain, free the device with `enginectl release {name}`",
            )
            for device in certain:
                told = reasons.get(device, ())
                reasons[device] = told if why in told else (*told, why)
        return reasons

    def unreadable(self, name: str | None = None) -> tuple[Unreadable, ...]:
        """What still holds a device or a name, of one name or of all, sorted by name."""
        held: dict[str, list[Case]] = {}
        for case in self._cases:
            if not case.gone and name in (None, shown(case.item.name)):
                held.setdefault(shown(case.item.name), []).append(case)
        return tuple(_told(name, cases) for name, cases in sorted(held.items()))

    @property
    def pids(self) -> set[int]:
        """Living processes that carry the marks of a case."""
        return {bearer.process.pid for case in self._cases for bearer in case.bearers}

    def __contains__(self, name: str) -> bool:
        return bool(self._of(name))

    async def examine(self, name: str) -> tuple[Case, ...]:
        """Each case of the name, looked at now."""
        cases = self._of(name)
        for case in cases:
            await self._look(case)
        return tuple(cases)

    async def forget(self, name: str) -> tuple[DeviceId, ...]:
        """Nothing of it runs any more, or a person answers for what does: its files go, and with
        them what they held. Raises ``StoreError``.
        """
        freed: list[DeviceId] = []
        for case in self._of(name):
            held = case.devices
            if case.item.reason != "lost":
                await self._house.store.discard(case.item)
            self._cases.remove(case)
            freed += held
        return tuple(dict.fromkeys(freed))

    def _of(self, name: str) -> list[Case]:
        """A name can have several: files of its earlier lives, and a cgroup without a record."""
        return [case for case in self._cases if shown(case.item.name) == name]

    async def _look(self, case: Case) -> None:
        """Ask everybody who may have started it. Who is away costs only what may be his."""
        item, found, doubts = case.item, list[Bearer](), list[str]()
        trace = Trace(
            name=item.name,
            nonce=item.nonce,
            runtime=item.runtime,
            cgroup=item.cgroup,
            supervisor=self._house.supervisor_id,
            log_folder=os.path.join(self._house.paths.log_dir, "engines", item.name),
        )
        if item.runtime not in (None, *self._house.launchers):
            doubts.append(f"this daemon has no launcher for a {item.runtime} handle")
        for runtime, launcher in self._house.launchers.items():
            if item.runtime in (None, runtime):
                try:
                    found += await launcher.bearers(trace)
                except CannotTellError as error:
                    doubts.append(str(error))
        case.doubts = tuple(doubts)
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
        nonce=stray.nonce,
        runtime=stray.runtime,
        devices=None,
        known=False,
    )


def unread(left: Unreadable) -> str:
    """What is in the way of the name, and what helps."""
    living = f"; alive: pid {', '.join(map(str, left.pids))}" if left.pids else ""
    return (
        f"{left.name} has no record that can be read ({left.path}: {left.reason}){living}; "
        f"once its engine is gone, `enginectl release {left.name}` frees its name and devices"
    )


def _told(name: str, cases: list[Case]) -> Unreadable:
    """All that is of one name, as one."""
    devices = dict.fromkeys(device for case in cases for device in case.devices)
    pids = {bearer.process.pid for case in cases for bearer in case.bearers}
    file = next((case.item for case in cases if case.item.reason != "lost"), cases[0].item)
    return Unreadable(
        name=name,
        path=shown(str(file.path)),
        reason=shown(f"{file.reason}: {file.detail}"),
        devices=None if any(case.mute for case in cases) else tuple(devices),
        pids=tuple(sorted(pids - {0})),
    )


def _news(item: Quarantined) -> Event:
    if item.reason == "lost":
        return Warning_(instance=shown(item.name), code="engine-lost", detail=shown(item.detail))
    return RecordQuarantined(
        instance=shown(item.name),
        path=shown(str(item.path)),
        reason=shown(f"{item.reason}: {item.detail}"),
    )


def shown(text: str) -> str:
    """A file's name may hold bytes that are no text, and events are text."""
    return os.fsencode(text[:2_000]).decode("utf-8", "backslashreplace")
