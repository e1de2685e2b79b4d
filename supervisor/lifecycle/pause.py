"""Between two attempts there is a pause, and after the last one there is the end.

In a pause the record is a reservation again: name, port and devices stay held. At the end the
record goes, and with it the lease; a tombstone stays.
"""

from collections.abc import Callable
from secrets import token_hex

import anyio
from msgspec import UNSET

from supervisor.clock import rfc3339, rfc3339_in
from supervisor.contracts.event import (
    GaveUp,
    LaunchFailed,
    Launching,
    Restarting,
    RestartReason,
    Stopped,
    Stopping,
)
from supervisor.contracts.failure import LaunchFailure
from supervisor.contracts.instance import ExitInfo, Tombstone
from supervisor.failures import bounded_pair
from supervisor.instances.durable import StoreError
from supervisor.lifecycle.errors import NotDone
from supervisor.lifecycle.life import Life
from supervisor.lifecycle.restart import GiveUp

BURY_AGAIN_S = 5.0
_RETRIES: frozenset[RestartReason] = frozenset({"back-off", "breaker"})


class Pause:
    """The part of an instance's task that deals with having no engine."""

    def __init__(self, life: Life, on_end: Callable[[Tombstone], None]) -> None:
        self._life = life
        self._on_end = on_end

    async def begin(
        self,
        attempt: int,
        delay_ms: int,
        reason: RestartReason,
        failures: tuple[LaunchFailure, LaunchFailure] | None,
    ) -> None:
        """Attempt number ``attempt`` is to follow. ``failures``: the first and the newest one.

        Where it is not the failures that ask for it (a command does, or the machine was restarted),
        the count begins again, and so it is another launch, with a nonce of its own.
        """
        life, clock, ledger = self._life, self._life.house.clock, self._life.ledger
        retry_at = rfc3339_in(clock, delay_ms)
        await ledger.settle()
        life.new_attempt()
        await ledger.write_or_warn(
            ledger.draft(
                record={"ref": None} | ({} if reason in _RETRIES else {"nonce": token_hex(16)}),
                intent="waiting",
                boot_id=clock.boot_id,
                attempt=attempt,
                plan=None,
                cgroup=None,
                ready_at=None,
                ready_monotonic_ns=None,
                deadline_monotonic_ns=None,
                restart_after_stop=False,
                stopping_for=None,
                stop_asked=False,
                grace_monotonic_ns=None,
                retry_at=retry_at,
                retry_monotonic_ns=clock.monotonic_ns() + delay_ms * 1_000_000,
                first_failure=failures[0] if failures else None,
                last_failure=failures[1] if failures else None,
            )
        )
        self._tell_restarting(reason)
        life.house.at("waiting")
        life.tell()

    async def sit_out(self) -> None:
        """Wait for the moment of the next attempt. A stop ends it all, a restart ends the wait."""
        life, clock = self._life, self._life.house.clock
        ledger, supervision = life.ledger, life.supervision
        # Else what was told is about the attempt before, or about the launch before.
        if Restarting not in ledger.told or ledger.told.keys() & {Launching, LaunchFailed}:
            self._tell_restarting("back-off" if supervision.last_failure else "requested")
        if supervision.boot_id != clock.boot_id and life.policy != "always":
            await self.end(supervision.last_failure)
            return
        with life.interruptible():
            due = supervision.retry_monotonic_ns or 0
            if supervision.boot_id == clock.boot_id:
                await anyio.sleep(max(0, due - clock.monotonic_ns()) / 1e9)
        command = life.take_command()
        if command is not None and command.final:
            await ledger.write_or_warn(ledger.draft(intent="stopping", stop_asked=True))
            ledger.publish(Stopping(grace_ms=0, reason=command.kind))
            life.house.at("stopping")
            await self.end_stopped()
            return
        await ledger.write_or_warn(
            ledger.draft(intent="launching", retry_at=None, retry_monotonic_ns=None)
        )
        life.house.at("retrying")
        life.fresh = True

    @property
    def was_stopped(self) -> bool:
        """A stop came in the pause, and nothing is left but to say so."""
        supervision = self._life.supervision
        asked = supervision.intent == "stopping" and supervision.stopping_for is None
        return asked and self._life.record.ref is None

    async def end_stopped(self) -> None:
        """The end of a pause by a stop."""
        devices = self._life.record.devices
        self._life.ledger.tell_once(
            Stopped(devices=devices, exit_code=None, signal=None, killed=())
        )
        await self.end(None)

    async def give_up(
        self, decision: GiveUp, attempts: int, failure: LaunchFailure, *, first: bool
    ) -> None:
        """``first``: no failure since the last stable period comes before this one."""
        begun_with = None if first else self._life.supervision.first_failure
        newest, oldest, cut = bounded_pair(failure, begun_with or failure)
        self._life.ledger.tell_once(
            GaveUp(
                attempts=attempts,
                failure=newest,
                first_failure=oldest,
                reason=decision.reason,
                truncated=cut,
            )
        )
        await self.end(failure)

    async def end(self, failure: LaunchFailure | None) -> None:
        """Free everything: the record goes, a tombstone stays."""
        life, house = self._life, self._life.house
        now = rfc3339(house.clock.wall())
        exit_, words = life.attempt.exit, life.last_words
        life.failure = failure
        tombstone = Tombstone(
            record=life.record,
            ended_at=now,
            failure=failure,
            exit=None
            if exit_ is None
            else ExitInfo(
                exit_code=exit_.exit_code,
                signal=exit_.signal,
                at=now,
                diagnosis=words.diagnosis if words else UNSET,
            ),
        )
        await life.ledger.settle()
        house.at("ending")
        await self._bury(tombstone)
        life.held_back = False
        life.attempt.close()
        self.lay_down(tombstone)

    async def _bury(self, tombstone: Tombstone) -> None:
        """The record is the lease: while it cannot be removed nothing is free, and it is tried on.

        A tombstone that cannot be written is only said.
        """
        life, store, said = self._life, self._life.house.store, ""
        while True:
            try:
                await store.bury(tombstone)
                return
            except StoreError as error:
                kept, detail = store.holds(life.name), str(error)
            if kept:
                detail = f"it has ended, but its record cannot be removed: {detail}"
            if detail != said:
                said = detail
                life.ledger.warn("record-write-failed", detail)
            if not kept:
                return
            life.held_back = True
            life.refusal = NotDone(f"{life.name}: {detail}; this is tried again")
            life.tell()
            await anyio.sleep(BURY_AGAIN_S)

    def lay_down(self, tombstone: Tombstone) -> None:
        """It is over, as everybody may see now."""
        self._life.tombstone = tombstone
        self._on_end(tombstone)
        self._life.tell()

    def _tell_restarting(self, reason: RestartReason) -> None:
        supervision = self._life.supervision
        retry_at = supervision.retry_at or rfc3339(self._life.house.clock.wall())
        self._life.ledger.publish(
            Restarting(attempt=supervision.attempt, retry_at=retry_at, reason=reason)
        )
