"""One instance: the only code that changes its record, as one task from reservation to the end.

The task is a line of attempts. Each brings an engine up (or takes up one that a record names),
stays with it, and takes it down; then the restart policy says whether another one follows. A
command from outside does not act by itself: it is noted and interrupts the line at its wait, and
the line goes on with the taking down.

Cancelling the task is no command. It happens when the daemon leaves, and then the task lets go of
everything as it is: the engine runs on, the record stays, and the next daemon resumes from it.
"""

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import anyio

from supervisor.clock import rfc3339, rfc3339_in
from supervisor.contracts.engine import ComputeEngineSpec, StopStyle
from supervisor.contracts.event import (
    Adopted,
    Event,
    Exited,
    GaveUp,
    LaunchFailed,
    Launching,
    MemberProcess,
    PortChanged,
    Ready,
    Reaped,
    Reserved,
    Restarting,
    RestartReason,
    Stopped,
    Stopping,
)
from supervisor.contracts.failure import Cancelled, ExitedEarly, LaunchFailure, SpawnFailed
from supervisor.contracts.instance import (
    ExitInfo,
    InstanceRecord,
    InstanceState,
    InstanceView,
    PinnedHandle,
    RestartPolicy,
    Tombstone,
)
from supervisor.failures import bounded_pair, to_event
from supervisor.health.line import Reply
from supervisor.instances.durable import StoreError
from supervisor.instances.state import Now, state_of, was_ready
from supervisor.launchers.base import CannotTellError, Exit, NotOursError, StopReceipt
from supervisor.lifecycle.attempt import Attempt
from supervisor.lifecycle.errors import CannotTell, LifecycleError, NotOurs, StopIncomplete
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.prepare import Preparation
from supervisor.lifecycle.redaction import Redactor
from supervisor.lifecycle.restart import GiveUp, Retry, decide
from supervisor.lifecycle.told import NOTHING, Told
from supervisor.lifecycle.views import living_view, tombstone_view

EARLY_EXIT_GRACE_MS = 5_000
"""What the members of a tree get to leave by themselves once their main process is gone."""
UNKNOWN_RECHECK_S = 10.0
PORT_ATTEMPTS = 3
PATIENCE_CRASHES = 2
"""So often a defect of ours may strike one instance before its callers are told."""

Prepare = Callable[[InstanceRecord], Awaitable[Preparation]]


@dataclass(frozen=True, slots=True)
class Command:
    """What somebody asked of an instance."""

    kind: Literal["stop", "cancel", "restart"]
    grace_ms: int | None


class Instance:
    """An actor: callers note commands and wait for facts, the task does the work."""

    def __init__(
        self,
        house: House,
        record: InstanceRecord,
        spec: ComputeEngineSpec | None,
        on_end: Callable[["Instance", Tombstone], None],
        *,
        prepare: Prepare,
        preparation: Preparation | None = None,
        told: Told = NOTHING,
        untouchable: str | None = None,
    ) -> None:
        """``preparation`` is there for a fresh launch; without one the record is taken up, of
        whose newest attempt so much was ``told`` already. ``untouchable`` says why nobody may act
        on the record: it keeps its lease, and no task is to be run.
        """
        self._house = house
        self._ledger = Ledger(house, record, told)
        self._style = spec.stop if spec else StopStyle()
        self._on_end = on_end
        self._prepare = prepare
        self._preparation = preparation
        self._fresh = preparation is not None
        self._attempt = Attempt(house, self._ledger, self._style)
        self._doubted: str | None = None
        self._last_words: ExitedEarly | None = None
        self._command: Command | None = None
        self._scope: anyio.CancelScope | None = None
        self._changed = anyio.Event()
        self.untouchable = untouchable
        if untouchable is not None and not isinstance(record.ref, PinnedHandle):
            self._attempt.liveness = "unknown"
        self._held_back = False
        self._crashes = 0
        self.known = self._fresh or untouchable is not None or record.ref is None
        """Whether it was looked at, so that what the view says is seen and not assumed."""
        self.reserved = not self._fresh
        self.readies = int(was_ready(record))
        """How often it became ready, as far as this daemon knows."""
        self.failure: LaunchFailure | None = None
        self.refusal: LifecycleError | None = None
        self.tombstone: Tombstone | None = None

    # ── what others see and ask ──────────────────────────────────────────────

    @property
    def record(self) -> InstanceRecord:
        return self._ledger.record

    @property
    def redactor(self) -> Redactor:
        return self._ledger.redactor

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def ready(self) -> bool:
        """The present attempt's readiness was proved; a pinned hold has nothing to prove."""
        return isinstance(self.record.ref, PinnedHandle) or was_ready(self.record)

    @property
    def over(self) -> bool:
        """Nothing more will come: it has ended, or its tree will not go or may not be touched."""
        return self.tombstone is not None or bool(self._attempt.stuck) or self._held_back

    def view(self) -> InstanceView:
        if self.tombstone is not None:
            return tombstone_view(self.tombstone)
        attempt = self._attempt
        return living_view(self.record, attempt.liveness, attempt.health, self._house.now())

    def state(self, now: Now) -> InstanceState:
        """As in the view, for who wants nothing else."""
        if self.tombstone is not None:
            return "exited"
        return state_of(self.record, self._attempt.liveness, self._attempt.health, now)

    async def members(self) -> tuple[MemberProcess, ...] | None:
        """The living processes of a ready engine; ``None`` while its tree is on its way out.

        Raises ``CannotTellError``, and ``ClosedResourceError`` when it ended meanwhile.
        """
        running = self._attempt.running
        if running is None or self._is_leaving():
            return None
        seen = await running.members()
        return None if self._is_leaving() else seen

    async def page(self, path: str, *, limit: int, within_s: float) -> Reply:
        """A page of the engine's own. Raises ``Miss`` where it cannot be had."""
        return await self._attempt.page(path, limit=limit, within_s=within_s)

    def _is_leaving(self) -> bool:
        return self._attempt.exit is not None or self._command is not None

    def publish(self, event: Event) -> None:
        """Say something about this instance."""
        self._ledger.publish(event)

    async def until(self, fact: Callable[["Instance"], bool]) -> None:
        """Return once ``fact`` holds. Facts change only where the task says so."""
        while not fact(self):
            await self._changed.wait()

    def lay_down(self, tombstone: Tombstone) -> None:
        """Of a pinned hold: it was released, and no task of its own can say so."""
        self.tombstone = tombstone
        self._on_end(self, tombstone)
        self._tell()

    def order(self, command: Command) -> None:
        """Note a command. A stop outranks a restart; else the first one counts."""
        held = self._command
        if held is None or (held.kind == "restart" and command.kind != "restart"):
            self._command = command
            if not self._attempt.stuck:
                self.refusal = None
            if self._scope is not None:
                self._scope.cancel()
            self._tell()

    # ── the line ─────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Attempt after attempt, until none is to follow. Returns when the record is gone."""
        while self.tombstone is None:
            if self._ledger.supervision.intent == "waiting":
                self._become_known()
                await self._sit_out()
            elif self._is_stopped_pause:
                self._become_known()
                await self._end_pause()
            else:
                await self._follow(await self._try())

    def let_go(self) -> None:
        """When the daemon leaves: give back what it holds for the engine, which runs on."""
        self._attempt.close()

    def rewind(self) -> None:
        """After a crash of the task: the next ``run`` takes up the record."""
        self._fresh = False
        self._scope = None
        self._crashes += 1
        if self._crashes > PATIENCE_CRASHES:
            self.known = True
            self.refusal = CannotTell(
                f"the supervisor fails at {self.name} again and again; see its log and the event "
                "task-crashed"
            )
            self._tell()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Waits inside end early when a command comes (or has come already)."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            if self._command is not None:
                scope.cancel()
            try:
                yield
            finally:
                self._scope = None

    async def _try(self) -> LaunchFailure | None:
        """One attempt, to the end of its tree. Says how it failed, if it was not told to end."""
        try:
            found = not self._fresh and await self._attach()
            self._become_known()
            with self._interruptible():
                if self._fresh:
                    await self._launch()
                else:
                    await self._take_up(found)
            if self._command is not None and not self.ready:
                raise Problem(Cancelled())
        except Problem as problem:
            return await self._unwind(problem.failure)
        if self._attempt.liveness == "gone" and self._command is None:
            return self._finish_stopping() or await self._reap()
        return await self._stay()

    def _finish_stopping(self) -> LaunchFailure | None:
        """What an earlier daemon was ending it for, where the engine has gone along meanwhile."""
        cause = self._ledger.supervision.stopping_for
        if cause is not None:
            self._tell_stopped(again=True, killed=())
        return cause

    def _become_known(self) -> None:
        if not self.known:
            self.known = True
            self._tell()

    async def _follow(self, failure: LaunchFailure | None) -> None:
        """What comes after an attempt whose tree is gone: another one, or the end."""
        command, self._command = self._command, None
        supervision = self._ledger.supervision
        if command is not None and command.kind == "restart":
            await self._wait_for(1, 0, "requested", None)
        elif command is not None or failure is None or not self.reserved:
            # Without a record there is nothing that could be tried again.
            await self._end(failure if command is None or not self.ready else None)
        elif supervision.boot_id != self._house.clock.boot_id:
            await self._after_boot(failure)
        else:
            attempt = 1 if self._was_stable() else supervision.attempt
            decision = decide(
                self._policy,
                self._house.config.restart,
                failure,
                attempt=attempt,
                chance=random.random(),
                was_ready=self.ready,
            )
            match decision:
                case Retry():
                    first = None if attempt == 1 else supervision.first_failure
                    failures = first or failure, failure
                    await self._wait_for(attempt + 1, decision.delay_ms, decision.reason, failures)
                case GiveUp():
                    await self._give_up(decision, attempt, failure, first=attempt == 1)
                case None:
                    await self._end(None if self.ready else failure)

    async def _after_boot(self, failure: LaunchFailure) -> None:
        """The machine was restarted under it: only ``always`` means that it comes back."""
        if self._policy == "always":
            await self._wait_for(1, 0, "boot", (failure, failure))
        else:
            await self._end(None if self.ready else failure)

    # ── up ───────────────────────────────────────────────────────────────────

    async def _launch(self) -> None:
        ledger = self._ledger
        if self._preparation is None:
            self._preparation = await self._prepare(self.record)
        preparation = self._preparation
        if not self.reserved:
            await ledger.write_or_fail(self.record)
            record = self.record
            ledger.publish(Reserved(engine=record.engine, devices=record.devices, port=record.port))
            self.reserved = True
            self._tell()
        for chance in range(1, PORT_ATTEMPTS + 1):
            try:
                prepared = await preparation.run(self.record)
                self._house.at("prepared")
                given = ledger.supervision.launch.ready_deadline_ms
                await self._attempt.spawn(prepared, given or prepared.plan.health.ready_deadline_ms)
                await self._until_ready()
                return
            except Problem as problem:
                suspect = chance < PORT_ATTEMPTS and _may_mean_stolen(problem.failure)
                if not (suspect and await self._moved_port(preparation)):
                    raise

    async def _until_ready(self) -> None:
        try:
            await self._attempt.until_ready()
        finally:  # it may be ready although something failed in the saying
            self.readies += self.ready
            self._tell()

    async def _moved_port(self, preparation: Preparation) -> bool:
        """Whether a stranger took the pool port before the engine bound it; then take another.

        What the engine itself left behind may hold the port too, and goes with its tree.
        """
        moved = await preparation.another_port(self.record)
        if moved is not None and self._attempt.running is not None:
            cleared = await self._clear_tree(EARLY_EXIT_GRACE_MS)
            moved = await preparation.another_port(self.record) if cleared else None
        if moved is None:
            return False
        self._ledger.publish(PortChanged(from_=self.record.port, to=moved))
        self._new_attempt()
        await self._ledger.claim(
            self._ledger.draft(
                record={"port": moved, "ref": None}, plan=None, cgroup=None, intent="launching"
            )
        )
        return True

    async def _attach(self) -> bool:
        """Get hold of what the record names; whether that is news to this daemon.

        No command cuts this short: who ends an instance must know first whether it has an engine.
        """
        attempt, ref = self._attempt, self.record.ref
        launcher = None if ref is None else self._house.launcher_of(ref)
        if ref is None or launcher is None or attempt.opening:
            return False
        news = attempt.running is None
        await attempt.attach(launcher, ref)
        self._house.at("attached")
        return news

    async def _take_up(self, found: bool) -> None:
        """A record that an earlier daemon, or an earlier run of this task, left."""
        attempt, ref = self._attempt, self.record.ref
        if attempt.opening:
            raise Problem(SpawnFailed(detail="the supervisor failed in the middle of this launch"))
        if ref is None:
            detail = "the supervisor ended in the middle of this launch; try again"
            raise Problem(self._ledger.supervision.stopping_for or SpawnFailed(detail=detail))
        launcher = self._house.launcher_of(ref)
        assert launcher is not None, "a record without one is untouchable, and is not run"
        while attempt.liveness == "unknown":
            self._doubt("it cannot be known whether the handle is ours")
            await anyio.sleep(UNKNOWN_RECHECK_S)
            await attempt.attach(launcher, ref)
        await self._catch_up()
        if attempt.liveness == "gone":
            attempt.exit = await attempt.found_exit()
        supervision = self._ledger.supervision
        if supervision.intent == "stopping":
            cause = supervision.stopping_for
            if supervision.stop_asked:
                self._resume("stop")
            elif cause is None or isinstance(cause, Cancelled):
                self._resume("restart" if supervision.restart_after_stop else "stop")
            if not self.ready:
                raise Problem(cause or Cancelled())
        elif attempt.exit is not None:
            if not self.ready:
                raise Problem(await attempt.exited_early(attempt.exit))
        else:
            if found:
                devices, port = self.record.devices, self.record.port
                self._ledger.publish(Adopted(ref=ref, devices=devices, port=port))
            if not self.ready:
                await self._until_ready()

    async def _catch_up(self) -> None:
        """Say what an earlier daemon wrote down and had no time to say, or the other way round."""
        ledger = self._ledger
        launched = ledger.supervision.launched_monotonic_ns or self._house.clock.monotonic_ns()
        told, ready = ledger.told.get(Ready), ledger.supervision.ready_monotonic_ns
        if self.ready and ledger.told:
            waited_ms = ((ready or launched) - launched) // 1_000_000
            ledger.tell_once(Ready(port=self.record.port, waited_ms=waited_ms))
        elif isinstance(told, Ready) and not self.ready:
            now = rfc3339(self._house.clock.wall())
            ready = launched + told.waited_ms * 1_000_000
            await ledger.write_or_warn(ledger.draft(ready_at=now, ready_monotonic_ns=ready))
            self.readies += 1
            self._tell()
        if isinstance(exited := ledger.told.get(Exited), Exited):
            self._attempt.ended_ns = launched + exited.uptime_ms * 1_000_000

    def _resume(self, kind: Literal["restart", "stop"]) -> None:
        """Go on obeying a command; a stop that came meanwhile outranks it."""
        if self._command is None or self._command.kind == "restart":
            self._command = Command(kind, None)

    def _grace_ms(self, asked: int | None, usual: int) -> int:
        """As asked; else what is left to an engine that is being stopped already; else as usual."""
        if asked is not None:
            return asked
        supervision, now = self._ledger.supervision, self._house.now()
        until = supervision.grace_monotonic_ns
        begun = supervision.intent == "stopping" and supervision.boot_id == now.boot_id
        if until is None or not begun:
            return usual
        return max(0, until - now.monotonic_ns) // 1_000_000

    def _grace_end(self, grace_ms: int) -> int:
        return self._house.clock.monotonic_ns() + grace_ms * 1_000_000

    # ── ready ────────────────────────────────────────────────────────────────

    async def _stay(self) -> LaunchFailure | None:
        """With a ready engine, until its tree is gone. Says why, if nobody told it to go."""
        attempt = self._attempt
        while True:
            unwell = self._ledger.supervision.stopping_for
            if unwell is None:
                with self._interruptible():
                    unwell = await attempt.watch(self._unhealthy_limit, self._tell_exit)
            if attempt.exit is not None and (self._last_words or self._command is None):
                return await self._ended_by_itself(attempt.exit)
            if self._command is not None:
                if await self._take_down(self._command.kind, self._command.grace_ms):
                    return None
            elif unwell is not None and await self._take_down("unhealthy", None, unwell):
                return unwell

    async def _tell_exit(self, exit_: Exit) -> None:
        """Nobody told it to end: that is news, before anything is done about it."""
        if self._command is None and self._last_words is None:
            self._last_words = await self._attempt.exited_early(exit_)
            launched = self._ledger.supervision.launched_monotonic_ns
            uptime = self._house.clock.monotonic_ns() - launched if launched else 0
            self._ledger.tell_once(
                Exited(
                    exit_code=exit_.exit_code,
                    signal=exit_.signal,
                    log_tail=self._last_words.log_tail,
                    uptime_ms=uptime // 1_000_000,
                )
            )

    async def _ended_by_itself(self, exit_: Exit) -> LaunchFailure:
        await self._tell_exit(exit_)
        assert self._last_words is not None, "just told"
        await self._clear_for_sure(EARLY_EXIT_GRACE_MS)
        return self._last_words

    async def _reap(self) -> LaunchFailure:
        """Found dead, after it had been ready under an earlier daemon."""
        exit_ = self._attempt.exit
        assert exit_ is not None, "taking up looked"
        if Exited not in self._ledger.told:
            devices = self.record.devices
            self._ledger.tell_once(
                Reaped(exit_code=exit_.exit_code, signal=exit_.signal, devices=devices)
            )
        return await self._attempt.exited_early(exit_)

    # ── down ─────────────────────────────────────────────────────────────────

    async def _take_down(
        self, reason: str, grace_ms: int | None, cause: LaunchFailure | None = None
    ) -> bool:
        """End an engine that had been ready. False where it may not be touched."""
        ledger, again = self._ledger, reason not in ("stop", "cancel")
        grace = self._grace_ms(grace_ms, self._style.grace_ms)
        await ledger.write_or_warn(
            ledger.draft(
                intent="stopping",
                restart_after_stop=again,
                stopping_for=cause,
                grace_monotonic_ns=self._grace_end(grace),
            )
        )
        if Stopped not in ledger.told:
            ledger.publish(Stopping(grace_ms=grace, reason=reason))
        self._house.at("stopping")
        receipt = await self._clear_tree(grace)
        if receipt is None:
            await ledger.write_or_warn(
                ledger.draft(
                    intent="running",
                    restart_after_stop=False,
                    stopping_for=None,
                    stop_asked=False,
                )
            )
            self._command = None
            self._tell()
            return False
        self._tell_stopped(again=again, killed=receipt.killed)
        return True

    def _tell_stopped(self, *, again: bool, killed: tuple[MemberProcess, ...]) -> None:
        exit_ = self._attempt.exit
        self._ledger.tell_once(
            Stopped(
                devices=() if again else self.record.devices,
                exit_code=exit_.exit_code if exit_ else None,
                signal=exit_.signal if exit_ else None,
                killed=killed,
            )
        )

    async def _unwind(self, failure: LaunchFailure) -> LaunchFailure:
        """Undo an attempt that did not get ready, whatever it got hold of, then say why.

        An exit is news at once; every other failure is told when all of it is undone. Where the
        undoing has to begin again, the cause stays the first one.
        """
        told = self._ledger.told.get(LaunchFailed)
        if isinstance(told, LaunchFailed):
            self.failure = told.failure
        failure = self.failure = self.failure or failure
        if isinstance(failure, ExitedEarly):
            self._tell_failure(failure)
        attempt, ledger, command = self._attempt, self._ledger, self._command
        await attempt.undo_opening()
        if attempt.running is not None:
            usual = self._style.grace_ms if attempt.exit is None else EARLY_EXIT_GRACE_MS
            grace_ms = self._grace_ms(command.grace_ms if command else None, usual)
            await ledger.write_or_warn(
                ledger.draft(
                    intent="stopping",
                    restart_after_stop=command is not None and command.kind == "restart",
                    stopping_for=failure,
                    grace_monotonic_ns=self._grace_end(grace_ms),
                )
            )
            self._house.at("unwinding")
            await self._clear_for_sure(grace_ms)
        self._tell_failure(failure)
        return failure

    async def _clear_for_sure(self, grace_ms: int) -> None:
        """As ``_clear_tree``, but never giving up: nothing is freed before the tree is gone."""
        # Nothing tells when a handle that could not be judged can be.
        while await self._clear_tree(grace_ms) is None:
            self._held_back = True
            if self.failure is not None and not self.ready:
                self._tell_failure(self.failure)
            self._tell()
            await anyio.sleep(UNKNOWN_RECHECK_S)
        self._held_back = False

    async def _clear_tree(self, grace_ms: int) -> StopReceipt | None:
        """End every process of the instance. ``None`` where it may not be touched."""
        receipt: StopReceipt | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._note_stop)
            try:
                receipt = await self._attempt.clear_tree(grace_ms, self._on_stuck)
            except (NotOursError, CannotTellError) as error:
                self._doubt(f"the stop was refused: {error}")
                kind = NotOurs if isinstance(error, NotOursError) else CannotTell
                self.refusal = kind(f"{self.name} was not touched: {error}")
            group.cancel_scope.cancel()
        return receipt

    async def _note_stop(self) -> None:
        """A stop that comes while the tree is going anyway wins over whatever was to follow."""
        await self.until(lambda it: it._command is not None and it._command.kind != "restart")
        if self._ledger.supervision.intent == "stopping":
            await self._ledger.write_or_warn(
                self._ledger.draft(restart_after_stop=False, stop_asked=True)
            )

    def _doubt(self, detail: str) -> None:
        """Once for as long as it is the same, however often it is looked at again."""
        if detail != self._doubted:
            self._doubted = detail
            self._ledger.warn("identity-unknown", detail)

    def _on_stuck(self) -> None:
        names = ", ".join(f"{member.name} ({member.pid})" for member in self._attempt.stuck)
        self.refusal = StopIncomplete(
            f"{self.name}: {names} survived SIGKILL; the devices stay held until they are gone"
        )
        if self.failure is not None and not self.ready:
            self._tell_failure(self.failure)
        self._tell()

    # ── between attempts, and the end ────────────────────────────────────────

    async def _wait_for(
        self,
        attempt: int,
        delay_ms: int,
        reason: RestartReason,
        failures: tuple[LaunchFailure, LaunchFailure] | None,
    ) -> None:
        """The record becomes a reservation again: name, port and devices stay held."""
        clock, ledger = self._house.clock, self._ledger
        retry_at = rfc3339_in(clock, delay_ms)
        await ledger.settle()
        self._new_attempt()
        await ledger.write_or_warn(
            ledger.draft(
                record={"ref": None},
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
        self._house.at("waiting")
        self._tell()

    def _tell_restarting(self, reason: RestartReason) -> None:
        supervision = self._ledger.supervision
        retry_at = supervision.retry_at or rfc3339(self._house.clock.wall())
        self._ledger.publish(
            Restarting(attempt=supervision.attempt, retry_at=retry_at, reason=reason)
        )

    async def _sit_out(self) -> None:
        """Wait for the moment of the next attempt. A stop ends it all, a restart ends the wait."""
        supervision = self._ledger.supervision
        if self._ledger.told.keys() & {
            Launching,
            LaunchFailed,
        }:  # so far they end with the last one
            self._tell_restarting("back-off" if supervision.last_failure else "requested")
        if supervision.boot_id != self._house.clock.boot_id and self._policy != "always":
            await self._end(supervision.last_failure)
            return
        with self._interruptible():
            due = supervision.retry_monotonic_ns or 0
            if supervision.boot_id == self._house.clock.boot_id:
                await anyio.sleep(max(0, due - self._house.clock.monotonic_ns()) / 1e9)
        command, self._command = self._command, None
        if command is not None and command.kind != "restart":
            await self._ledger.write_or_warn(self._ledger.draft(intent="stopping"))
            self._ledger.publish(Stopping(grace_ms=0, reason=command.kind))
            self._house.at("stopping")
            await self._end_pause()
            return
        await self._ledger.write_or_warn(
            self._ledger.draft(intent="launching", retry_at=None, retry_monotonic_ns=None)
        )
        self._house.at("retrying")
        self._fresh = True

    @property
    def _is_stopped_pause(self) -> bool:
        """A stop came while there was no engine, and nothing is left but to say so."""
        supervision = self._ledger.supervision
        asked = supervision.intent == "stopping" and supervision.stopping_for is None
        return asked and self.record.ref is None

    async def _end_pause(self) -> None:
        devices = self.record.devices
        self._ledger.tell_once(Stopped(devices=devices, exit_code=None, signal=None, killed=()))
        await self._end(self._ledger.supervision.last_failure)

    async def _give_up(
        self, decision: GiveUp, attempts: int, failure: LaunchFailure, *, first: bool
    ) -> None:
        """``first``: no failure since the last stable period comes before this one."""
        begun_with = None if first else self._ledger.supervision.first_failure
        newest, oldest, cut = bounded_pair(failure, begun_with or failure)
        self._ledger.tell_once(
            GaveUp(
                attempts=attempts,
                failure=newest,
                first_failure=oldest,
                reason=decision.reason,
                truncated=cut,
            )
        )
        await self._end(failure)

    async def _end(self, failure: LaunchFailure | None) -> None:
        """Free everything: the record goes, a tombstone stays."""
        now = rfc3339(self._house.clock.wall())
        exit_ = self._attempt.exit
        self.failure = failure
        tombstone = Tombstone(
            record=self.record,
            ended_at=now,
            failure=failure,
            exit=None
            if exit_ is None
            else ExitInfo(exit_code=exit_.exit_code, signal=exit_.signal, at=now),
        )
        await self._ledger.settle()
        self._house.at("ending")
        try:
            await self._house.store.bury(tombstone)
        except StoreError as error:
            self._ledger.warn("record-write-failed", str(error))
        self._attempt.close()
        self.tombstone = tombstone
        self._on_end(self, tombstone)
        self._tell()

    # ── small things ─────────────────────────────────────────────────────────

    @property
    def _policy(self) -> RestartPolicy:
        return self._ledger.supervision.launch.restart or "never"

    @property
    def _unhealthy_limit(self) -> int | None:
        return None if self._policy == "never" else self._house.config.restart.unhealthy_ms or None

    def _was_stable(self) -> bool:
        """Whether it was seen to be ready for long enough. What nobody saw does not count."""
        since, until = self._ledger.supervision.ready_monotonic_ns, self._attempt.ended_ns
        if since is None or until is None:
            return False
        return until - since >= self._house.config.restart.stable_ms * 1_000_000

    def _new_attempt(self) -> None:
        self._attempt.close()
        self._attempt = Attempt(self._house, self._ledger, self._style)
        self._last_words = None
        self.failure = None

    def _tell_failure(self, failure: LaunchFailure) -> None:
        """Each attempt says once why it failed."""
        supervision = self._ledger.supervision
        self._ledger.tell_once(
            to_event(
                failure,
                instance=self.name,
                nonce=self.record.nonce,
                attempt=supervision.attempt,
                log_path=supervision.log_path,
            )
        )

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def _may_mean_stolen(failure: LaunchFailure) -> bool:
    """Found taken by the preflight, or perhaps by an engine that then could not bind."""
    if isinstance(failure, SpawnFailed):
        return failure.reason == "port-taken"
    return isinstance(failure, ExitedEarly)
