"""Holds on devices that have no process: made by ``pin``, ended by ``release`` and nothing else.

A pin is a record like any other, so that nobody else gets its devices, over restarts and reboots.
It has no task: nothing about it is probed, stopped or reaped. So what changes its file is done
here, one after the other.
"""

from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex

import anyio
from msgspec import UNSET

from supervisor.clock import rfc3339
from supervisor.contracts.event import Pinned, Released
from supervisor.contracts.host import SELF
from supervisor.contracts.instance import InstanceRecord, InstanceView, PinnedHandle, Tombstone
from supervisor.contracts.rpc import PinParams, ReleaseReply
from supervisor.instances.codec import valid_name
from supervisor.instances.durable import StoreError
from supervisor.lifecycle.booking import BookingDesk
from supervisor.lifecycle.errors import InvalidLaunch, LaunchRefused, NotDone
from supervisor.lifecycle.house import House
from supervisor.lifecycle.instance import Instance
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.roster import Roster
from supervisor.lifecycle.views import tombstone_view

UNTOUCHABLE = "it is a pinned hold"
HOLDER_CHARS = 200


def is_pin(record: InstanceRecord) -> bool:
    return isinstance(record.ref, PinnedHandle)


class Pins:
    """Makes and ends the pins of one roster. Used on the event loop only."""

    def __init__(
        self,
        house: House,
        desk: BookingDesk,
        roster: Roster,
        ended: Callable[[Instance, Tombstone], None],
    ) -> None:
        self._house = house
        self._desk = desk
        self._roster = roster
        self._ended = ended
        self._turn = anyio.Lock()

    async def pin(self, params: PinParams) -> InstanceView:
        """Hold the devices, alone, and return once that is on disk.

        Raises ``LaunchRefused`` where the name or a device is taken, ``InvalidLaunch``,
        ``NotDone``.
        """
        _check(params)
        snapshot = await self._house.snapshot()
        profile = await self._house.profile()
        async with self._turn:
            # No wait from here to the entry: that makes the reservation one step.
            if self._roster.taken(params.name):
                raise LaunchRefused(self._roster.occupied(params.name))
            try:
                self._desk.hold(params.devices, snapshot, profile)
            except Problem as problem:
                raise LaunchRefused(problem.failure) from None
            record = self._record(params)
            instance = self._roster.enter(
                Instance(
                    self._house,
                    record,
                    None,
                    self._ended,
                    prepare=self._desk.again,
                    untouchable=UNTOUCHABLE,
                )
            )
            try:
                await self._house.store.write(record)
            except StoreError as error:
                with suppress(StoreError):
                    await self._house.store.remove(params.name)
                self._roster.leave(params.name)
                raise NotDone(f"the hold cannot be written down: {error}") from error
        self._house.publish(
            Pinned(
                instance=record.name,
                nonce=record.nonce,
                holder=params.holder,
                devices=record.devices,
            )
        )
        return instance.view()

    async def release(self, instance: Instance) -> ReleaseReply:
        """Free a pin's devices. Raises ``NotDone`` where its file cannot be removed: then they
        stay held.
        """
        async with self._turn:
            record = instance.record
            if instance.tombstone is None:
                await self._bury(instance)
                self._house.publish(
                    Released(instance=record.name, nonce=record.nonce, devices=record.devices)
                )
            assert instance.tombstone is not None
            return ReleaseReply(devices=record.devices, view=tombstone_view(instance.tombstone))

    async def _bury(self, instance: Instance) -> None:
        tombstone = Tombstone(
            record=instance.record,
            ended_at=rfc3339(self._house.clock.wall()),
            failure=None,
            exit=None,
        )
        store = self._house.store
        try:
            await store.bury(tombstone)
        except StoreError:  # a tombstone can be done without; the record must be gone
            try:
                await store.remove(instance.name)
            except StoreError as error:
                raise NotDone(
                    f"the record of {instance.name} could not be removed: {error}"
                ) from error
        instance.lay_down(tombstone)

    def _record(self, params: PinParams) -> InstanceRecord:
        """What the seed has, and no more: there is no launch that a restart could go on with."""
        now = rfc3339(self._house.clock.wall())
        return InstanceRecord(
            name=params.name,
            node_id=SELF,
            engine=params.engine,
            recipe_id=params.name,
            runtime="process",
            ref=PinnedHandle(holder=params.holder),
            port=0,
            devices=params.devices,
            nonce=token_hex(16),
            started_at=now,
            ready_deadline_at=now,
            supervision=UNSET,
        )


def _check(params: PinParams) -> None:
    if not valid_name(params.name):
        raise InvalidLaunch(
            f"{params.name[:80]!r} is no instance name: letters, digits and . _ - "
            "(the first one a letter or digit), at most 63"
        )
    if not params.holder.strip() or len(params.holder) > HOLDER_CHARS:
        raise InvalidLaunch(f"holder says who holds the devices, in 1 to {HOLDER_CHARS} letters")
    if not params.holder.isprintable():
        raise InvalidLaunch("holder has letters that cannot be printed")
