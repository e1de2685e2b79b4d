"""One instance: the only code that changes its record, as one task from reservation to the end.

The task is a straight line. It brings the engine up (or resumes one that a record names), watches
it while it is ready, and takes it down. A command from outside does not act by itself: it is noted
and interrupts the line at the next wait, and the line then goes on with the taking down.

Cancelling the task is no command. It happens when the daemon leaves, and then the task lets go of
everything as it is: the engine runs on, the record stays, and the next daemon resumes from it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import anyio
import structlog
from msgspec.structs import replace

from supervisor.clock import rfc3339
from supervisor.contracts.engine import ComputeEngineSpec, LaunchPlan, StopStyle
from supervisor.contracts.event import (
    Adopted,
    Event,
    Exited,
    Launching,
    MemberProcess,
    PortChanged,
    Ready,
    Reaped,
    Recovered,
    Reserved,
    Spawned,
    Stopped,
    Stopping,
    Swept,
    Unhealthy,
    Warning_,
    WarningCode,
)
from supervisor.contracts.event import (
    StopIncomplete as StopIncompleteEvent,
)
from supervisor.contracts.failure import (
    Cancelled,
    ExitedEarly,
    LaunchFailure,
    SpawnFailed,
    UnhealthyTimeout,
)
from supervisor.contracts.instance import (
    ExitInfo,
    HealthView,
    InstanceRecord,
    InstanceView,
    Liveness,
    PinnedHandle,
    Supervision,
    Tombstone,
)
from supervisor.engines.api_key import api_key
from supervisor.failures import to_event
from supervisor.health.address import AddressError, probe_addresses
from supervisor.health.outcome import NotReady
from supervisor.health.pacing import RELAXED_S
from supervisor.health.probe import Probe
from supervisor.health.readiness import Expired, wait_ready
from supervisor.instances.durable import StoreError
from supervisor.instances.state import unhealthy_after, was_ready
from supervisor.launchers.base import (
    CannotTellError,
    Exit,
    Gated,
    NotOursError,
    Running,
    SpawnError,
    SpawnTicket,
    StopReceipt,
)
from supervisor.lifecycle.errors import CannotTell, LifecycleError, NotOurs, StopIncomplete
from supervisor.lifecycle.house import House
from supervisor.lifecycle.logtail import read_tail
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.prepare import Preparation, Prepared
from supervisor.lifecycle.redaction import Redactor
from supervisor.lifecycle.views import living_view, tombstone_view

EARLY_EXIT_GRACE_MS = 5_000
"""What the members of a tree get to leave by themselves once their main process is gone."""
STUCK_RECHECK_S = 5.0
UNKNOWN_RECHECK_S = 10.0
PORT_ATTEMPTS = 3
LOG_TAIL_BYTES = 8 << 10

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    """What somebody asked of an instance."""

    kind: Literal["stop", "cancel"]
    grace_ms: int | None


class Instance:
    """An actor: callers note commands and wait for facts, the task does the work."""

    def __init__(
        self,
        house: House,
        record: InstanceRecord,
        spec: ComputeEngineSpec | None,
        preparation: Preparation | None,
        on_end: Callable[["Instance", Tombstone], None],
        writable: bool = True,
    ) -> None:
        self._house = house
        self._spec = spec
        self._preparation = preparation
        self._on_end = on_end
        self._gated: Gated | None = None
        self._running: Running | None = None
        self._probe: Probe | None = None
        self._command: Command | None = None
        self._scope: anyio.CancelScope | None = None
        self._changed = anyio.Event()
        self._failure_published = False
        self.record = record
        self.writable = writable
        self.reserved = preparation is None
        self.misses = 0
        self.liveness: Liveness = "alive"
        self.exit: Exit | None = None
        self.failure: LaunchFailure | None = None
        self.stuck: tuple[MemberProcess, ...] = ()
        self.refusal: LifecycleError | None = None
        self.tombstone: Tombstone | None = None
        self.redactor = Redactor.of_record(record)

    # ── what others see and ask ──────────────────────────────────────────────

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def ready(self) -> bool:
        return was_ready(self.record)

    @property
    def settled(self) -> bool:
        """The launch has an outcome: readiness, or an end, or a tree that will not go."""
        return self.ready or self.tombstone is not None or bool(self.stuck)

    @property
    def health(self) -> HealthView:
        last = self._probe.last if self._probe else None
        return HealthView(misses=self.misses, last=last.text if last else None)

    def view(self) -> InstanceView:
        if self.tombstone is not None:
            return tombstone_view(self.tombstone)
        return living_view(self.record, self.liveness, self.health, self._house.now())

    async def until(self, fact: Callable[["Instance"], bool]) -> None:
        """Return once ``fact`` holds. Facts change only where the task says so."""
        while not fact(self):
            await self._changed.wait()

    def order(self, command: Command) -> None:
        """Note a command. The first one counts; a second of either kind waits for its outcome."""
        if self._command is None:
            self._command = command
            self.refusal = None
            if self._scope is not None:
                self._scope.cancel()

    # ── the line ─────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Live once: up, watch, down. Returns when the record is gone."""
        try:
            with self._interruptible():
                if self._preparation is None:
                    await self._resume()
                else:
                    await self._launch(self._preparation)
            if self._command is not None and not self.ready:
                raise Problem(Cancelled())
        except Problem as problem:
            await self._unwind(problem.failure)
            return
        if self.liveness == "gone" and self.exit is not None:
            await self._reap(self.exit)
        while self.tombstone is None:
            if self._command is not None:
                await self._take_down(self._command)
            else:
                await self._watch()

    def rewind(self) -> None:
        """After a crash of the task: the next ``run`` resumes from the record."""
        self._preparation = None
        self._scope = None

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

    async def _launch(self, preparation: Preparation) -> None:
        await self._write_or_fail()
        self._publish(
            Reserved(engine=self.record.engine, devices=self.record.devices, port=self.record.port)
        )
        self.reserved = True
        self._tell()
        for attempt in range(PORT_ATTEMPTS):
            prepared = await preparation.run(self.record)
            self._house.at("prepared")
            await self._spawn(prepared)
            try:
                await self._until_ready()
                return
            except Problem as problem:
                stolen = isinstance(problem.failure, ExitedEarly) and attempt + 1 < PORT_ATTEMPTS
                if not (stolen and await self._moved_port(preparation)):
                    raise

    async def _spawn(self, prepared: Prepared) -> None:
        plan, ticket = prepared.plan, prepared.ticket
        budget_ms = self._deadline_ms(plan)
        self.redactor = Redactor.of(self._supervision.launch, plan)
        self._publish(
            Launching(
                plan=self.redactor.plan(plan),
                attempt=self._supervision.attempt,
                deadline_ms=budget_ms,
            )
        )
        launcher = self._house.launchers[plan.kind]
        try:
            self._gated = await launcher.prepare(plan, ticket)
            self._house.at("gated")
            await self._write_handle(self._gated, plan, ticket, budget_ms)
            self._house.at("recorded")
            self._running = await self._gated.open()
        except SpawnError as error:
            self._gated = None
            failure = SpawnFailed(detail=error.detail)
            if error.reason is not None:
                failure = replace(failure, reason=error.reason)
            raise Problem(failure) from error
        self._gated = None
        self._publish(Spawned(ref=self._running.ref, log_path=ticket.log_path))
        self._house.at("spawned")

    async def _write_handle(
        self, gated: Gated, plan: LaunchPlan, ticket: SpawnTicket, budget_ms: int
    ) -> None:
        """From here on the deadline counts; the record names the handle before it can do harm."""
        clock = self._house.clock
        now = clock.monotonic_ns()
        self.record = replace(
            self.record,
            ref=gated.ref,
            ready_deadline_at=rfc3339(clock.wall() + timedelta(milliseconds=budget_ms)),
            supervision=replace(
                self._supervision,
                intent="running",
                boot_id=clock.boot_id,
                plan=plan,
                log_path=ticket.log_path,
                launched_monotonic_ns=now,
                deadline_monotonic_ns=now + budget_ms * 1_000_000,
            ),
        )
        await self._write_or_fail()

    async def _until_ready(self) -> None:
        """Race the proof of readiness against the exit and the deadline."""
        running, supervision = self._need_running(), self._supervision
        plan = supervision.plan
        if plan is None or supervision.deadline_monotonic_ns is None:
            raise Problem(SpawnFailed(detail="the record names a handle but no plan"))
        deadline, since = supervision.deadline_monotonic_ns, supervision.launched_monotonic_ns
        outcome: object = None
        async with await self._probing(plan) as probe, anyio.create_task_group() as race:

            async def see_exit() -> None:
                self.exit = await running.wait_exit()
                race.cancel_scope.cancel()

            race.start_soon(see_exit)
            outcome = await wait_ready(
                probe,
                interval_ms=plan.health.interval_ms,
                since_ns=since or self._house.clock.monotonic_ns(),
                deadline_ns=lambda: deadline,
                monotonic_ns=self._house.clock.monotonic_ns,
                on_first=self._warn_of,
            )
            race.cancel_scope.cancel()
        if self.exit is not None:
            raise Problem(await self._exited_early(self.exit))
        if isinstance(outcome, Expired):
            raise Problem(await self._timed_out(outcome))
        await self._become_ready()

    async def _probing(self, plan: LaunchPlan) -> Probe:
        try:
            addresses = await probe_addresses(self._supervision.bind_host)
        except AddressError as error:
            raise Problem(SpawnFailed(detail=str(error))) from error
        key = api_key(plan.argv, plan.env)
        self._probe = Probe(
            addresses, self.record.port, plan.health, self._need_running(), api_key=key
        )
        return self._probe

    def _warn_of(self, seen: NotReady) -> None:
        """Some answers will not change by waiting, so they are news at their first occurrence."""
        if seen.kind == "foreign":
            self._warn("port-foreign", seen.text)
        elif seen.kind == "denied":
            self._warn("proof-denied", seen.text)

    async def _become_ready(self) -> None:
        clock, supervision = self._house.clock, self._supervision
        waited = clock.monotonic_ns() - (supervision.launched_monotonic_ns or 0)
        record = replace(
            self.record, supervision=replace(supervision, ready_at=rfc3339(clock.wall()))
        )
        await self._write_or_warn(record)
        self.record = record
        self._publish(Ready(port=self.record.port, waited_ms=waited // 1_000_000))
        self._house.at("ready")
        self._tell()

    # ── ready: watch ─────────────────────────────────────────────────────────

    async def _watch(self) -> None:
        """Until the main process is dead, or a command comes."""
        running = self._need_running()
        with self._interruptible():
            async with anyio.create_task_group() as watch:
                watch.start_soon(self._keep_health)
                self.exit = await running.wait_exit()
                self.liveness = "leaderGone"
                watch.cancel_scope.cancel()
        if self.exit is not None and self._command is None:
            await self._ended_by_itself(self.exit)

    async def _keep_health(self) -> None:
        """Probe slowly, count consecutive misses, and say so when they cross the line."""
        plan = self._supervision.plan
        if plan is None:
            return
        limit = unhealthy_after(self.record)
        unhealthy_since: int | None = None
        async with await self._probing(plan) as probe:
            while True:
                await anyio.sleep(RELAXED_S)
                seen = await probe.health()
                if isinstance(seen, NotReady):
                    self.misses += 1
                    if self.misses == limit:
                        unhealthy_since = self._house.clock.monotonic_ns()
                        self._publish(Unhealthy(reason=seen.text, misses=self.misses))
                else:
                    self.misses = 0
                    if unhealthy_since is not None:
                        spent = self._house.clock.monotonic_ns() - unhealthy_since
                        self._publish(Recovered(unhealthy_ms=spent // 1_000_000))
                        unhealthy_since = None

    async def _ended_by_itself(self, exit_: Exit) -> None:
        tail = await self._tail()
        launched = self._supervision.launched_monotonic_ns
        uptime = self._house.clock.monotonic_ns() - launched if launched else 0
        self._publish(
            Exited(
                exit_code=exit_.exit_code,
                signal=exit_.signal,
                log_tail=tail,
                uptime_ms=uptime // 1_000_000,
            )
        )
        if await self._clear_tree(EARLY_EXIT_GRACE_MS, "the main process is gone"):
            await self._end()

    # ── down ─────────────────────────────────────────────────────────────────

    async def _take_down(self, command: Command) -> None:
        """An explicit stop of an engine that had been ready."""
        grace_ms = self._grace_ms(command)
        await self._write_intent("stopping")
        self._publish(Stopping(grace_ms=grace_ms, reason=command.kind))
        self._house.at("stopping")
        receipt = await self._clear_tree(grace_ms, "the stop")
        if receipt is None:
            self._command = None
            return
        self.exit = receipt.exit or self.exit
        self._publish(
            Stopped(
                devices=self.record.devices,
                exit_code=self.exit.exit_code if self.exit else None,
                signal=self.exit.signal if self.exit else None,
                killed=receipt.killed,
            )
        )
        await self._end()

    async def _unwind(self, failure: LaunchFailure) -> None:
        """Undo a launch that did not get ready, whatever it got hold of, then say why.

        An exit is news at once; every other failure is told when all of it is undone.
        """
        self.failure = failure
        if isinstance(failure, ExitedEarly):
            self._publish_failure(failure)
        if self._gated is not None:
            await self._gated.abandon()
            # An interrupted opening may have let the engine through.
            launcher = self._house.launcher_of(self._gated.ref)
            if launcher is not None:
                self._running = await launcher.attach(self._gated.ref, self.record.nonce)
            self._gated = None
        if self._running is not None:
            await self._write_intent("stopping")
            command = self._command
            grace_ms = self._grace_ms(command) if self.exit is None else EARLY_EXIT_GRACE_MS
            # noqa below: nothing tells when a handle that could not be judged can be.
            while await self._clear_tree(grace_ms, "the failed launch") is None:  # noqa: ASYNC110
                await anyio.sleep(UNKNOWN_RECHECK_S)
        self._publish_failure(failure)
        await self._end()

    async def _clear_tree(self, grace_ms: int, why: str) -> StopReceipt | None:
        """End every process of the instance. ``None`` where it may not be touched.

        A tree that will not go keeps its devices: this then goes on until it is gone.
        """
        running = self._need_running()
        style = self._spec.stop if self._spec else StopStyle()
        try:
            receipt = await running.stop(style, grace_ms)
        except (NotOursError, CannotTellError) as error:
            self._warn("identity-unknown", f"{why} was refused: {error}")
            kind = NotOurs if isinstance(error, NotOursError) else CannotTell
            self.refusal = kind(f"{self.name} was not touched: {error}")
            self._tell()
            return None
        if receipt.swept:
            self._publish(Swept(members=receipt.swept, devices=self.record.devices))
        if receipt.survivors:
            await self._outlast(running, receipt.survivors)
        return receipt

    async def _outlast(self, running: Running, survivors: tuple[MemberProcess, ...]) -> None:
        self.stuck = survivors
        self._publish(StopIncompleteEvent(survivors=survivors, devices=self.record.devices))
        names = ", ".join(f"{member.name} ({member.pid})" for member in survivors)
        self.refusal = StopIncomplete(
            f"{self.name}: {names} survived SIGKILL; the devices stay held until they are gone"
        )
        self._tell()
        # noqa below: nothing tells when a process leaves the kernel that KILL could not end.
        while await running.liveness() != "gone":  # noqa: ASYNC110
            await anyio.sleep(STUCK_RECHECK_S)
        self.stuck = ()

    async def _end(self) -> None:
        """Free everything: the record goes, a tombstone stays."""
        clock = self._house.clock
        self.liveness = "gone"
        tombstone = Tombstone(
            record=self.record,
            ended_at=rfc3339(clock.wall()),
            failure=self.failure,
            exit=None
            if self.exit is None
            else ExitInfo(
                exit_code=self.exit.exit_code,
                signal=self.exit.signal,
                at=rfc3339(clock.wall()),
            ),
        )
        self._house.at("ending")
        try:
            await self._house.store.bury(tombstone)
        except StoreError as error:
            self._warn("record-write-failed", str(error))
        if self._running is not None:
            self._running.close()
        self.tombstone = tombstone
        self._on_end(self, tombstone)
        self._tell()

    # ── resume ───────────────────────────────────────────────────────────────

    async def _resume(self) -> None:
        """Take up a record that an earlier daemon, or an earlier run of this task, left."""
        ref = self.record.ref
        if self._gated is not None:
            raise Problem(SpawnFailed(detail="the supervisor failed in the middle of this launch"))
        if ref is None:
            raise Problem(
                SpawnFailed(detail="the supervisor ended in the middle of this launch; try again")
            )
        known = self._running is not None
        if self._running is None:
            launcher = self._house.launcher_of(ref)
            if launcher is None:
                self.liveness = "alive" if isinstance(ref, PinnedHandle) else "unknown"
                await anyio.sleep_forever()
                return
            self._running = await launcher.attach(ref, self.record.nonce)
        self.liveness = await self._running.liveness()
        while self.liveness == "unknown":
            self._warn("identity-unknown", "it cannot be known whether the handle is ours")
            await anyio.sleep(UNKNOWN_RECHECK_S)
            self.liveness = await self._running.liveness()
        if self._supervision.intent == "stopping":
            self._command = Command("stop", None)
            return
        if self.liveness == "gone":
            self.exit = await self._running.wait_exit()
            if not self.ready:
                raise Problem(await self._exited_early(self.exit))
            return
        if not known:
            self._publish(Adopted(ref=ref, devices=self.record.devices, port=self.record.port))
        if not self.ready:
            await self._until_ready()

    async def _reap(self, exit_: Exit) -> None:
        """Found dead, after it had been ready under an earlier daemon."""
        self._publish(
            Reaped(exit_code=exit_.exit_code, signal=exit_.signal, devices=self.record.devices)
        )
        await self._end()

    # ── small things ─────────────────────────────────────────────────────────

    @property
    def _supervision(self) -> Supervision:
        supervision = self.record.supervision
        assert supervision, "lifecycle only takes records that have one"
        return supervision

    def _need_running(self) -> Running:
        assert self._running is not None, "only called once there is a handle"
        return self._running

    def _deadline_ms(self, plan: LaunchPlan) -> int:
        return self._supervision.launch.ready_deadline_ms or plan.health.ready_deadline_ms

    def _grace_ms(self, command: Command | None) -> int:
        if command is not None and command.grace_ms is not None:
            return command.grace_ms
        return self._spec.stop.grace_ms if self._spec else StopStyle().grace_ms

    async def _exited_early(self, exit_: Exit) -> ExitedEarly:
        return ExitedEarly(
            exit_code=exit_.exit_code, signal=exit_.signal, log_tail=await self._tail()
        )

    async def _timed_out(self, expired: Expired) -> UnhealthyTimeout:
        return UnhealthyTimeout(
            waited_ms=expired.waited_ms,
            log_tail=await self._tail(),
            last_probe=self.redactor.text(expired.last.text),
        )

    async def _tail(self) -> str:
        raw = await read_tail(self._supervision.log_path, LOG_TAIL_BYTES)
        return self.redactor.tail(raw)

    async def _moved_port(self, preparation: Preparation) -> bool:
        """Whether a stranger took the pool port before the engine bound it; then take another."""
        moved = await preparation.another_port(self.record)
        if moved is None:
            return False
        if await self._clear_tree(EARLY_EXIT_GRACE_MS, "the retry on another port") is None:
            return False
        self._publish(PortChanged(from_=self.record.port, to=moved))
        self._need_running().close()
        self._running, self.exit = None, None
        self.record = replace(
            self.record, port=moved, ref=None, supervision=replace(self._supervision, plan=None)
        )
        await self._write_or_fail()
        return True

    async def _write_or_fail(self) -> None:
        try:
            await self._house.store.write(self.record)
        except StoreError as error:
            failure = SpawnFailed(detail=f"the instance's record cannot be written: {error}")
            if error.reason in ("disk-full", "denied"):
                failure = replace(failure, reason=error.reason)
            raise Problem(failure) from error

    async def _write_or_warn(self, record: InstanceRecord) -> None:
        try:
            await self._house.store.write(record)
        except StoreError as error:
            self._warn("record-write-failed", str(error))

    async def _write_intent(self, intent: Literal["stopping"]) -> None:
        self.record = replace(self.record, supervision=replace(self._supervision, intent=intent))
        await self._write_or_warn(self.record)

    def _publish_failure(self, failure: LaunchFailure) -> None:
        """Each attempt says once why it failed."""
        if not self._failure_published:
            self._failure_published = True
            self._publish(
                to_event(
                    failure,
                    instance=self.name,
                    nonce=self.record.nonce,
                    attempt=self._supervision.attempt,
                    log_path=self._supervision.log_path,
                )
            )

    def _publish(self, event: Event) -> None:
        self._house.publish(replace(event, instance=self.name, nonce=self.record.nonce))

    def _warn(self, code: WarningCode, detail: str) -> None:
        self._publish(Warning_(code=code, detail=self.redactor.text(detail)))

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
