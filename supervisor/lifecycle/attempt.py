"""One run of an engine: brought up or found, watched, and taken down with its whole tree."""

import dataclasses
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio

from supervisor.clock import rfc3339
from supervisor.contracts.engine import StopStyle
from supervisor.contracts.event import (
    Launching,
    MemberProcess,
    Phase,
    Spawned,
    Swept,
)
from supervisor.contracts.event import (
    StopIncomplete as StopIncompleteEvent,
)
from supervisor.contracts.failure import SpawnFailed, UnhealthyTimeout
from supervisor.contracts.instance import HandleReference, HealthView, Liveness
from supervisor.health.line import Reply
from supervisor.health.outcome import NotReady
from supervisor.health.pacing import BEATS, RELAXED_S, until_beat_s
from supervisor.launchers.base import (
    Exit,
    Gated,
    Launcher,
    Running,
    SpawnError,
    StopReceipt,
    StopUnfinishedError,
)
from supervisor.lifecycle.asking import Asking
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.prepare import Prepared
from supervisor.lifecycle.readying import until_ready
from supervisor.lifecycle.receipt import device_memory, tree_on_devices
from supervisor.lifecycle.wellbeing import Wellbeing
from supervisor.lifecycle.withdrawn import warn_if_withdrawn
from supervisor.lifecycle.words import timed_out
from supervisor.logs.rotation import Rotation

STUCK_RECHECK_S = 5.0


class Attempt:
    """Used by one task. What it knows of the engine are observations; none of them is stored."""

    def __init__(self, house: House, ledger: Ledger, stop_style: StopStyle) -> None:
        self._house = house
        self._ledger = ledger
        self._style = stop_style
        self._gated: Gated | None = None
        self._asking = Asking(house, ledger)
        self.running: Running | None = None
        self.exit: Exit | None = None
        self.liveness: Liveness = "alive"
        self._wellbeing = Wellbeing(house, ledger)
        self.ended_ns: int | None = None
        """When a daemon saw the main process end, or set out to end it."""
        self.stuck: tuple[MemberProcess, ...] = ()
        self.found = False
        """A record named it, and this daemon has not said yet that it adopted it."""
        self.met = False
        """This daemon saw it live."""
        self.told_to_end = False
        """A signal reached its tree, or may have: from then on it is not left up."""

    @property
    def health(self) -> HealthView:
        last = self._asking.last
        return HealthView(misses=self._wellbeing.misses, last=last.text if last else None)

    @property
    def doubt(self) -> str | None:
        """Why nothing can be known of the engine now, where that was noticed."""
        return self.running.doubt if self.running else None

    @property
    def opening(self) -> bool:
        """There is a stub behind a gate, or there was one when something went wrong."""
        return self._gated is not None

    # ── up ───────────────────────────────────────────────────────────────────

    async def spawn(self, prepared: Prepared, budget_ms: int) -> None:
        """Start the engine behind its gate: handle, record, and only then the engine itself."""
        plan, ticket, ledger = prepared.plan, prepared.ticket, self._ledger
        clock = self._house.clock
        ledger.publish(
            Launching(
                plan=ledger.redactor.plan(plan),
                attempt=ledger.supervision.attempt,
                deadline_ms=budget_ms,
            )
        )
        try:
            self._gated = await self._house.launchers[plan.kind].prepare(
                plan, dataclasses.replace(ticket, tell=self._tell_phase)
            )
            self._house.at("gated")
            now = clock.monotonic_ns()
            await ledger.write_or_fail(
                ledger.draft(
                    record={
                        "ref": self._gated.ref,
                        "ready_deadline_at": rfc3339(
                            clock.wall() + timedelta(milliseconds=budget_ms)
                        ),
                    },
                    intent="running",
                    boot_id=clock.boot_id,
                    plan=plan,
                    log_path=ticket.log_path,
                    cgroup=self._gated.cgroup,
                    launched_monotonic_ns=now,
                    deadline_monotonic_ns=now + budget_ms * 1_000_000,
                    log_position=None,
                )
            )
            self._house.at("recorded")
            self.running = await self._gated.open()
        except SpawnError as error:
            if not error.remains:
                self._gated = None
            raise Problem(_spawn_failed(error)) from error
        self._gated = None
        self.met = True
        self._keep_log()
        ledger.publish(Spawned(ref=self.running.ref, log_path=ticket.log_path))
        self._house.at("spawned")

    def _tell_phase(self, phase: str, detail: str) -> None:
        self._ledger.publish(Phase(phase=phase, detail=self._ledger.redactor.text(detail)))

    async def attach(self, launcher: Launcher, ref: HandleReference) -> Liveness:
        """Answer for an engine that a record names."""
        if self.running is None:
            supervision = self._ledger.supervision
            self.running = await launcher.attach(
                ref, self._ledger.record.nonce, supervision.cgroup, supervision.log_path
            )
            self.found = True
            self._keep_log()
        self.liveness = await self.running.liveness()
        self.met |= self.liveness == "alive"
        return self.liveness

    async def found_exit(self) -> Exit:
        """How an engine ended that was found dead, as far as that can still be known."""
        return await self._need_running().wait_exit()

    async def until_ready(self) -> None:
        """Returns with ``readyAt`` written and ``ready`` told; raises ``Problem`` otherwise."""
        running = self._need_running()
        await until_ready(self._house, self._ledger, running, self._asking, self._saw_exit)

    def _saw_exit(self, exit_: Exit) -> None:
        self.exit = exit_
        self.liveness = "leaderGone"

    # ── ready ────────────────────────────────────────────────────────────────

    async def page(self, path: str, *, limit: int, within_s: float) -> Reply:
        """A page of the ready engine's own. Raises ``Miss`` where it cannot be had."""
        return await self._asking.page(path, limit=limit, within_s=within_s)

    async def watch(
        self, give_up_ms: int | None, on_exit: Callable[[Exit], Awaitable[None]]
    ) -> UnhealthyTimeout | None:
        """Until the main process is dead (``exit`` says how), or it was unhealthy for too long.

        ``on_exit`` is awaited first of all, for the exit is news at once.
        """
        running = self._need_running()
        failure: UnhealthyTimeout | None = None
        async with anyio.create_task_group() as group:

            async def see_exit() -> None:
                exit_ = await running.wait_exit()
                if self.liveness == "alive":  # else nobody saw when it ended
                    self.ended_ns = self._house.clock.monotonic_ns()
                self._saw_exit(exit_)
                await on_exit(exit_)
                group.cancel_scope.cancel()

            group.start_soon(see_exit)
            group.start_soon(warn_if_withdrawn, self._house, self._ledger)
            failure = await self._keep_health(give_up_ms)
            group.cancel_scope.cancel()
        return failure

    async def _keep_health(self, give_up_ms: int | None) -> UnhealthyTimeout:
        """Probe slowly, count consecutive misses, and say so when they cross the line."""
        plan = self._ledger.supervision.plan
        if plan is None:
            await anyio.sleep_forever()
            raise AssertionError
        monotonic_ns = self._house.clock.monotonic_ns
        every_ms = self._ledger.supervision.launch.deep_check_ms
        every_ns = every_ms * 1_000_000 if every_ms else None
        due_ns = monotonic_ns() + (every_ns or 0)
        running, asking = self._need_running(), self._asking
        async with asking.probing(plan, running) as probe, asking.paging(plan, running):
            # By chance, lest engines that were started together are all asked at one beat.
            beats = random.randint(1, BEATS)
            while True:
                await anyio.sleep(until_beat_s(beats, anyio.current_time(), RELAXED_S))
                beats = BEATS
                deep = every_ns is not None and monotonic_ns() >= due_ns
                seen = await (probe.deep() if deep else probe.health())
                if deep and every_ns:
                    due_ns = monotonic_ns() + every_ns
                self._wellbeing.wonder(self.doubt)
                lasted_ms = self._wellbeing.judge(seen)
                if isinstance(seen, NotReady) and give_up_ms and lasted_ms >= give_up_ms:
                    return await timed_out(self._house, self._ledger, lasted_ms, seen)

    # ── down ─────────────────────────────────────────────────────────────────

    async def undo_opening(self) -> None:
        """After an interrupted start: the stub is ended, or the engine that it became found."""
        if self._gated is None:
            return
        await self._gated.abandon()
        launcher = self._house.launcher_of(self._gated.ref)
        if launcher is not None:
            self.running = await launcher.attach(
                self._gated.ref,
                self._ledger.record.nonce,
                self._gated.cgroup,
                self._ledger.supervision.log_path,
            )
        self._gated = None

    async def unjudged(self) -> str | None:
        """Why nobody can tell whether the tree lives, looked at now; ``None`` where one can."""
        if self.running is None or await self.running.liveness() != "unknown":
            return None
        return self.doubt or "it cannot be judged"

    async def clear_tree(self, grace_ms: int, on_stuck: Callable[[], None]) -> StopReceipt:
        """End every process of the tree, and return when none is left, however long it takes.

        Raises ``NotOursError`` or ``CannotTellError`` where nothing may be touched, and
        ``StopUnfinishedError`` where it was and now cannot be followed. What survives even KILL
        keeps its devices: ``on_stuck`` is called once, and the wait goes on.
        """
        running = self._need_running()
        if self.liveness == "gone":
            return StopReceipt(exit=self.exit)
        if self.ended_ns is None and self.liveness == "alive":
            self.ended_ns = self._house.clock.monotonic_ns()
        inventory, devices = self._house.inventory, self._ledger.record.devices
        tree = await tree_on_devices(inventory, devices, running)
        try:
            receipt = await running.stop(self._style, grace_ms)
        except StopUnfinishedError:
            self.told_to_end = True
            raise
        self.exit = self.exit or receipt.exit
        if receipt.swept:
            devices = self._ledger.record.devices
            self._ledger.publish(Swept(members=receipt.swept, devices=devices))
        if receipt.survivors:
            self.stuck = receipt.survivors
            devices = self._ledger.record.devices
            self._ledger.publish(StopIncompleteEvent(survivors=receipt.survivors, devices=devices))
            self.liveness = await running.liveness()
            on_stuck()
            # Nothing tells when a process leaves the kernel that KILL could not end.
            while (seen := await running.liveness()) != "gone":
                self.liveness = seen
                await anyio.sleep(STUCK_RECHECK_S)
            self.stuck = ()
        self.liveness = "gone"
        memory, whose = await device_memory(inventory, devices, tree)
        if memory == "left":
            self._ledger.warn("memory-left", f"the driver still sees {whose}")
        return dataclasses.replace(receipt, device_memory=memory)

    def close(self) -> None:
        """Let go of what the daemon holds for it; the engine is not touched."""
        if path := self._ledger.supervision.log_path:
            self._house.logs.leave(path)
        if self.running is not None:
            self.running.close()

    # ── its log ──────────────────────────────────────────────────────────────

    def _keep_log(self) -> None:
        if path := self._ledger.supervision.log_path:
            self._house.logs.keep(path, self._log_was_moved)

    def _log_was_moved(self, rotation: Rotation) -> None:
        if rotation.may_have_lost:
            detail = (
                "the log's file system cannot take out a file's head, so the log was truncated; "
                "lines written at that very moment may be lost"
            )
            self._ledger.warn("log-lost", detail)
        if rotation.trouble:
            self._ledger.warn("log-unbounded", rotation.trouble)

    def _need_running(self) -> Running:
        assert self.running is not None, "only called once there is a handle"
        return self.running


def _spawn_failed(error: SpawnError) -> SpawnFailed:
    if error.reason is None:
        return SpawnFailed(detail=error.detail)
    return SpawnFailed(detail=error.detail, reason=error.reason)
