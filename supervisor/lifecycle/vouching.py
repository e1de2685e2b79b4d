"""``release`` of what nobody can judge: a person vouches that its engine is gone.

Of an instance that is one whose launcher cannot tell, and its word is asked for with ``force``;
otherwise of a record that cannot be read.

People err, and a device that is freed under a living engine goes to the next launch. So whatever
can be looked at is looked at first, and while any of it lives the release is refused: a process
or container with its marks, who is in its cgroup or has its log, who computes on its devices.
``force`` is for those who know better, such as of a process that is stuck in a driver for good;
nobody is ended by it, and the events say what was alive.
"""

from collections.abc import Iterable, Iterator

import anyio

from supervisor.contracts.event import Released, Warning_
from supervisor.contracts.rpc import ReleaseReply
from supervisor.devices.inventory import DevicesUnknown
from supervisor.instances.durable import StoreError
from supervisor.instances.lease import told
from supervisor.launchers.base import Bearer
from supervisor.lifecycle.booking import BookingDesk
from supervisor.lifecycle.errors import CannotTell, NoSuchInstance, NotDone, NotOurs, StillAlive
from supervisor.lifecycle.house import House
from supervisor.lifecycle.instance import Instance
from supervisor.lifecycle.quarantine import Case, Quarantine
from supervisor.lifecycle.strangers import Strangers

DYING_S = 1.0
"""Whoever releases has often killed just before: what dies is given the time for it."""
AGAIN_S = 0.1
SHOWN = 20
"""More processes than this are counted only."""


class Vouching:
    """One release at a time. Used on the event loop only."""

    def __init__(
        self, house: House, desk: BookingDesk, quarantine: Quarantine, strangers: Strangers
    ) -> None:
        self._house = house
        self._desk = desk
        self._quarantine = quarantine
        self._strangers = strangers
        self._turn = anyio.Lock()

    async def release(self, name: str, *, force: bool) -> ReleaseReply:
        """Raises ``NoSuchInstance``, ``StillAlive``, ``CannotTell``, ``NotDone``."""
        async with self._turn:
            living, doubts = await self._look(name)
            with anyio.move_on_after(0.0 if force else DYING_S):
                while living:
                    await anyio.sleep(AGAIN_S)
                    living, doubts = await self._look(name)
            if not force:
                _refuse(name, living, doubts)
            try:
                devices = await self._quarantine.forget(name)
            except StoreError as error:
                raise NotDone(f"the file of {name} could not be removed: {error}") from error
        self._house.publish(Released(instance=name, devices=devices))
        if living or doubts:
            detail = f"released by force; {_listed([*living, *doubts])}"
            self._house.publish(Warning_(instance=name, code="released-alive", detail=detail))
        return ReleaseReply(devices=devices)

    async def take_the_word(self, instance: Instance, *, force: bool) -> ReleaseReply:
        """Of an instance that nobody can look at, such as a container whose engine was replaced.

        Raises ``NotOurs`` where it can be judged, ``CannotTell`` without ``force``.
        """
        doubt = await instance.unjudged()
        if doubt is None:
            raise NotOurs(f"{instance.name} is a running instance, and no hold; stop it instead")
        if not force:
            _refuse(instance.name, [], [doubt])
        instance.vouch()
        await instance.until(lambda it: it.tombstone is not None or it.refusal is not None)
        if instance.tombstone is None and instance.refusal is not None:
            raise instance.refusal
        view = instance.view()
        name, nonce, devices = view.record.name, view.record.nonce, view.record.devices
        self._house.publish(Released(instance=name, nonce=nonce, devices=devices))
        return ReleaseReply(devices=devices, view=view)

    async def _look(self, name: str) -> tuple[list[str], list[str]]:
        """What lives of it, and who could not tell."""
        cases = await self._quarantine.examine(name)
        if not cases:
            raise NoSuchInstance(f"there is no hold named {name!r}")
        living, doubts = [*_living(cases)], [it for case in cases for it in case.doubts]
        try:
            living += await self._computing(name)
        except DevicesUnknown as error:
            doubts.append(str(error))
        return living, doubts

    async def _computing(self, name: str) -> list[str]:
        """Strangers on the devices that would be freed: one of them may be the engine."""
        snapshot = await self._house.inventory.snapshot(fresh=True)
        foreign = await self._strangers.among(snapshot)
        return [
            f"{told(process)} computes on {device}"
            for device, reasons in self._desk.withheld(snapshot).items()
            if any(why.name == name for why in reasons)
            for process in foreign.get(device, ())
        ]


def _living(cases: Iterable[Case]) -> Iterator[str]:
    """Each once, although several files may tell of it."""
    found = {(it.process.pid, it.process.name): it for case in cases for it in case.bearers}
    return map(_described, found.values())


def _described(bearer: Bearer) -> str:
    process = bearer.process
    who = f"pid {process.pid} ({process.name})" if process.pid else f"container {process.name}"
    return f"{who} lives, known {bearer.sign} (to end it: {bearer.ending})"


def _refuse(name: str, living: list[str], doubts: list[str]) -> None:
    force = (
        f"`enginectl release --force {name}` frees its devices all the same: the next launch "
        "may then share them with what lives"
    )
    if living:
        raise StillAlive(
            f"{name} is not released: {_listed(living)}; "
            f"end that first, then release again. {force}"
        )
    if doubts:
        raise CannotTell(f"{name} is not released, for it may be alive: {_listed(doubts)}; {force}")


def _listed(facts: list[str]) -> str:
    more = f"; and {len(facts) - SHOWN} more" if len(facts) > SHOWN else ""
    return "; ".join(facts[:SHOWN]) + more
