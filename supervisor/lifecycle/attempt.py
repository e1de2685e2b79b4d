"""One run of an engine: brought up or found, watched, and taken down with its whole tree."""

import dataclasses
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio

from supervisor.clock import rfc3339
from supervisor.contracts.engine import LaunchPlan, StopStyle
from supervisor.contracts.event import (
    Launching,
    MemberProcess,
    Phase,
    Ready,
    Spawned,
    Swept,
)
from supervisor.contracts.event import (
    StopIncomplete as StopIncompleteEvent,
)
from supervisor.contracts.failure import SpawnFailed, UnhealthyTimeout
from supervisor.contracts.instance import HandleReference, HealthView, Liveness
from supervisor.engines.api_key import api_key
from supervisor.engines.tls import speaks_tls
from supervisor.health.address import AddressError, IPAddress, probe_addresses
from supervisor.health.line import Reply
from supervisor.health.outcome import Miss, NotReady
from supervisor.health.outcome import Ready as Answered
from supervisor.health.pacing import RELAXED_S
from supervisor.health.probe import Probe
from supervisor.health.readiness import wait_ready
from supervisor.launchers.base import (
    Exit,
    Gated,
    Launcher,
    Running,
    SpawnError,
    StopReceipt,
    StopUnfinishedError,
)
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger
from supervisor.lifecycle.loading import Loading
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.prepare import Prepared
from supervisor.lifecycle.receipt import device_memory, tree_on_devices
from supervisor.lifecycle.wellbeing import Wellbeing
from supervisor.lifecycle.words import exited_early, timed_out
from supervisor.logs.rotation import Rotation

STUCK_RECHECK_S = 5.0
DOOM_S = 0.5
"""Between the line that says an engine will never be ready, and the end of the wait for it."""


class Attempt:
    """Used by one task. What it knows of the engine are observations; none of them is stored."""

    def __init__(self, house: House, ledger: Ledger, stop_style: StopStyle) -> None:
        self._house = house
        self._ledger = ledger
        self._style = stop_style
        self._gated: Gated | None = None
        self._probe: Probe | None = None
        self._pages: Probe | None = None
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
        last = self._probe.last if self._probe else None
        return HealthView(misses=self._wellbeing.misses, last=last.text if last else None)

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
        """Race the proof of readiness against the exit and the deadline.

        Returns with ``readyAt`` written and ``ready`` published; raises ``Problem`` otherwise.
        """
        running, supervision = self._need_running(), self._ledger.supervision
        plan = supervision.plan
        if plan is None or supervision.deadline_monotonic_ns is None:
            raise Problem(SpawnFailed(detail="the record names a handle but no plan"))
        monotonic_ns = self._house.clock.monotonic_ns
        outcome: object = None
        budget_ms = supervision.launch.ready_deadline_ms or plan.health.ready_deadline_ms
        loading = Loading(self._house, self._ledger, budget_ms)
        async with (
            self._probing(plan, await self._addresses() or ()) as probe,
            loading.watched(),
            anyio.create_task_group() as race,
        ):

            async def see_exit() -> None:
                self.exit = await running.wait_exit()
                self.liveness = "leaderGone"
                race.cancel_scope.cancel()

            async def see_doom() -> None:
                await loading.doomed.wait()
                await anyio.sleep(DOOM_S)  # for the rest of what it has to say, or its exit
                race.cancel_scope.cancel()

            race.start_soon(see_exit)
            race.start_soon(see_doom)
            race.start_soon(loading.keep_record)
            outcome = await wait_ready(
                probe,
                interval_ms=plan.health.interval_ms,
                since_ns=supervision.launched_monotonic_ns or monotonic_ns(),
                deadline_ns=loading.deadline_ns,
                monotonic_ns=monotonic_ns,
                pace=self._house.pace,
                on_first=self._warn_of,
            )
            race.cancel_scope.cancel()
        if self.exit is not None:
            raise Problem(await exited_early(self._house, self._ledger, self.exit))
        if not isinstance(outcome, Answered):
            waited_ns = monotonic_ns() - (supervision.launched_monotonic_ns or monotonic_ns())
            last = probe.last if isinstance(probe.last, NotReady) else None
            failure = await timed_out(self._house, self._ledger, waited_ns // 1_000_000, last)
            raise Problem(failure)
        await self._become_ready()

    async def _addresses(self) -> tuple[IPAddress, ...] | None:
        """Where to ask; ``None`` while a name cannot be resolved, which proves nothing."""
        try:
            return await probe_addresses(self._ledger.supervision.bind_host)
        except AddressError as error:
            self._ledger.warn("proof-denied", str(error))
            return None

    def _probing(self, plan: LaunchPlan, addresses: tuple[IPAddress, ...]) -> Probe:
        self._probe = self._asking(plan, addresses)
        return self._probe

    def _asking(self, plan: LaunchPlan, addresses: tuple[IPAddress, ...]) -> Probe:
        return Probe(
            addresses,
            self._ledger.record.port,
            plan.health,
            self._need_running(),
            api_key=api_key(plan.argv, plan.env),
            tls=speaks_tls(plan.argv, plan.env),
            mask=lambda text: self._ledger.redactor.text(text),  # noqa: PLW0108 - it changes
        )

    def _warn_of(self, seen: NotReady) -> None:
        """Some answers will not change by waiting, so they are news at their first occurrence."""
        if seen.kind == "foreign":
            self._ledger.warn("port-foreign", seen.text)
        elif seen.kind == "denied":
            self._ledger.warn("proof-denied", seen.text)

    async def _become_ready(self) -> None:
        clock, ledger = self._house.clock, self._ledger
        now = clock.monotonic_ns()
        waited = now - (ledger.supervision.launched_monotonic_ns or now)
        await ledger.write_or_warn(
            ledger.draft(ready_at=rfc3339(clock.wall()), ready_monotonic_ns=now)
        )
        ledger.publish(Ready(port=ledger.record.port, waited_ms=waited // 1_000_000))
        self._house.at("ready")

    # ── ready ────────────────────────────────────────────────────────────────

    async def page(self, path: str, *, limit: int, within_s: float) -> Reply:
        """A page of the ready engine's own. Raises ``Miss`` where it cannot be had."""
        if self._pages is None:
            raise Miss("unreachable", "the engine cannot be asked now")
        return await self._pages.page(path, limit=limit, within_s=within_s)

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
                self.exit = await running.wait_exit()
                if self.liveness == "alive":  # else nobody saw when it ended
                    self.ended_ns = self._house.clock.monotonic_ns()
                self.liveness = "leaderGone"
                await on_exit(self.exit)
                group.cancel_scope.cancel()

            group.start_soon(see_exit)
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
        # Nothing tells when a name can be resolved again.
        while (addresses := await self._addresses()) is None:  # noqa: ASYNC110
            await anyio.sleep(RELAXED_S)
        async with (
            self._probing(plan, addresses) as probe,
            # One of its own: who asks for a page neither delays the probes nor waits for them.
            self._asking(plan, addresses) as self._pages,
        ):
            while True:
                await anyio.sleep(RELAXED_S)
                deep = every_ns is not None and monotonic_ns() >= due_ns
                seen = await (probe.deep() if deep else probe.health())
                if deep and every_ns:
                    due_ns = monotonic_ns() + every_ns
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
                self._gated.ref, self._ledger.record.nonce, self._gated.cgroup
            )
        self._gated = None

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
