"""Bringing an attempt up: a fresh launch, or what a record left by an earlier daemon names."""

from collections.abc import Awaitable, Callable

import anyio
from msgspec import UNSET

from supervisor.clock import rfc3339
from supervisor.contracts.event import Adopted, Exited, PortChanged, Ready, Reserved
from supervisor.contracts.failure import ExitedEarly, LaunchFailure, SpawnFailed, UnhealthyTimeout
from supervisor.contracts.instance import InstanceRecord
from supervisor.lifecycle.down import EARLY_EXIT_GRACE_MS, UNKNOWN_RECHECK_S, Down
from supervisor.lifecycle.ending import Command, to_resume
from supervisor.lifecycle.life import Life
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.prepare import Preparation
from supervisor.lifecycle.words import exited_early

PORT_ATTEMPTS = 3
PORT_GRACE_MS = 500
"""What members of an engine that has ended get to give its port back. Whose it was decides whether
the exit is a failure, which is news, so not for long."""

Prepare = Callable[[InstanceRecord], Awaitable[Preparation]]


class Up:
    """The part of an instance's task that starts engines and takes them up."""

    def __init__(
        self, life: Life, down: Down, prepare: Prepare, preparation: Preparation | None
    ) -> None:
        self._life = life
        self._down = down
        self._prepare = prepare
        self._preparation = preparation

    # ── a launch ─────────────────────────────────────────────────────────────

    async def launch(self) -> None:
        """Returns at readiness. Raises ``Problem``."""
        life, ledger = self._life, self._life.ledger
        # What a launch was prepared with is of its own time: devices come and go until a retry.
        preparation, self._preparation = self._preparation, None
        preparation = preparation or await self._prepare(life.record)
        if not life.reserved:
            await ledger.write_or_fail(life.record)
            record = life.record
            ledger.publish(Reserved(engine=record.engine, devices=record.devices, port=record.port))
            life.reserved = True
            life.tell()
        for chance in range(1, PORT_ATTEMPTS + 1):
            try:
                prepared = await preparation.run(life.record)
                if chance == 1 and prepared.fit is not None and prepared.fit.fits is False:
                    ledger.warn("fit", prepared.fit.why)
                life.house.at("prepared")
                given = life.supervision.launch.ready_deadline_ms
                await life.attempt.spawn(prepared, given or prepared.plan.health.ready_deadline_ms)
                await self._until_ready()
                return
            except Problem as problem:
                suspect = chance < PORT_ATTEMPTS and _may_mean_stolen(problem.failure)
                if not (suspect and await self._moved_port(preparation)):
                    raise

    async def _until_ready(self) -> None:
        try:
            await self._life.attempt.until_ready()
        finally:  # it may be ready although something failed in the saying
            self._life.readies += self._life.ready
            self._life.tell()

    async def _moved_port(self, preparation: Preparation) -> bool:
        """Whether a stranger took the pool port before the engine bound it; then take another.

        What the engine itself left behind may hold the port too, and goes with its tree.
        """
        life, ledger = self._life, self._life.ledger
        moved = await preparation.another_port(life.record)
        if moved is not None:
            await life.attempt.undo_opening()
        if moved is not None and life.attempt.running is not None:
            grace_ms = EARLY_EXIT_GRACE_MS if life.attempt.exit is None else PORT_GRACE_MS
            cleared = await self._down.clear_tree(grace_ms)
            moved = await preparation.another_port(life.record) if cleared else None
        if moved is None:
            return False
        ledger.publish(PortChanged(from_=life.record.port, to=moved))
        life.new_attempt()
        await ledger.claim(
            ledger.draft(
                record={"port": moved, "ref": None}, plan=None, cgroup=None, intent="launching"
            )
        )
        return True

    # ── a record ─────────────────────────────────────────────────────────────

    async def attach(self) -> None:
        """Get hold of what the record names.

        No command cuts this short: who ends an instance must know first whether it has an engine.
        """
        attempt, ref = self._life.attempt, self._life.record.ref
        launcher = None if ref is None else self._life.house.launcher_of(ref)
        if ref is None or launcher is None or attempt.opening:
            return
        await attempt.attach(launcher, ref)
        self._life.house.at("attached")

    async def take_up(self) -> None:
        """A record that an earlier daemon, or an earlier run of this task, left; or one whose
        engine could not be stopped.

        Returns once it is ready, or as soon as there is a cause to bring it down. Raises
        ``Problem``.
        """
        life, attempt, ref = self._life, self._life.attempt, self._life.record.ref
        if attempt.opening:
            raise Problem(SpawnFailed(detail="the supervisor failed in the middle of this launch"))
        if ref is None:
            detail = "the supervisor ended in the middle of this launch; try again"
            raise Problem(life.supervision.stopping_for or SpawnFailed(detail=detail))
        launcher = life.house.launcher_of(ref)
        assert launcher is not None, "a record without one is untouchable, and is not run"
        while attempt.liveness == "unknown":
            life.doubt(attempt.doubt or "it cannot be known whether the handle is ours")
            await anyio.sleep(UNKNOWN_RECHECK_S)
            await attempt.attach(launcher, ref)
            life.tell()
        await self._catch_up()
        if attempt.liveness == "gone":
            attempt.exit = await attempt.found_exit()
        if life.supervision.intent == "stopping":
            if verb := to_resume(life.supervision):
                life.resume(Command(verb, None))
        elif attempt.exit is not None:
            if not life.ready:
                raise Problem(await exited_early(life.house, life.ledger, attempt.exit))
        else:
            if attempt.found:
                attempt.found = False
                devices, port = life.record.devices, life.record.port
                life.ledger.publish(Adopted(ref=ref, devices=devices, port=port))
            if not life.ready:
                await self._until_ready()

    async def _catch_up(self) -> None:
        """Say what an earlier daemon wrote down and had no time to say, or the other way round."""
        life, ledger = self._life, self._life.ledger
        launched = ledger.supervision.launched_monotonic_ns or life.house.clock.monotonic_ns()
        told, ready = ledger.told.get(Ready), ledger.supervision.ready_monotonic_ns
        if life.ready and ledger.told:
            waited_ms = ((ready or launched) - launched) // 1_000_000
            ledger.tell_once(Ready(port=life.record.port, waited_ms=waited_ms))
        elif isinstance(told, Ready) and not life.ready:
            now = rfc3339(life.house.clock.wall())
            ready = launched + told.waited_ms * 1_000_000
            await ledger.write_or_warn(ledger.draft(ready_at=now, ready_monotonic_ns=ready))
            life.readies += 1
            life.tell()
        if isinstance(exited := ledger.told.get(Exited), Exited):
            life.attempt.ended_ns = launched + exited.uptime_ms * 1_000_000


def _may_mean_stolen(failure: LaunchFailure) -> bool:
    """Found taken by the preflight, or perhaps by an engine that then could not bind."""
    if isinstance(failure, SpawnFailed):
        return failure.reason == "port-taken"
    if isinstance(failure, UnhealthyTimeout):  # it stays up without its port, or at another one
        return failure.diagnosis is not UNSET and failure.diagnosis.code == "port-in-use"
    return isinstance(failure, ExitedEarly)
