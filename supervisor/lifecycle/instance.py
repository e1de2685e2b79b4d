"""One instance: the only code that changes its record, as one task from reservation to the end.

The task is a line of attempts. Each brings an engine up (or takes up one that a record names),
stays with it, and brings it down; then the restart policy says whether another one follows. A
command from outside does not act by itself: it is noted and interrupts the line at its wait, and
the line goes on with the bringing down.

Cancelling the task is no command. It happens when the daemon leaves, and then the task lets go of
everything as it is: the engine runs on, the record stays, and the next daemon resumes from it.
"""

import random
from collections.abc import Callable

from supervisor.contracts.engine import ComputeEngineSpec, StopStyle
from supervisor.contracts.event import Event, Exited, MemberProcess, Reaped
from supervisor.contracts.failure import LaunchFailure
from supervisor.contracts.instance import InstanceRecord, InstanceState, InstanceView, Tombstone
from supervisor.health.line import Reply
from supervisor.instances.state import Now, state_of
from supervisor.launchers.base import Exit
from supervisor.lifecycle.down import Down
from supervisor.lifecycle.ending import Cause, Command
from supervisor.lifecycle.errors import CannotTell, LifecycleError
from supervisor.lifecycle.house import House
from supervisor.lifecycle.life import Life
from supervisor.lifecycle.pause import Pause
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.prepare import Preparation
from supervisor.lifecycle.redaction import Redactor
from supervisor.lifecycle.restart import GiveUp, Retry, decide
from supervisor.lifecycle.told import NOTHING, Told
from supervisor.lifecycle.up import Prepare, Up
from supervisor.lifecycle.views import living_view, tombstone_view
from supervisor.lifecycle.words import exited_early

PATIENCE_CRASHES = 2
"""So often a defect of ours may strike one instance before its callers are told."""


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
        self._life = Life(
            house,
            record,
            spec.stop if spec else StopStyle(),
            told,
            fresh=preparation is not None,
            untouchable=untouchable,
        )
        self._down = Down(self._life)
        self._up = Up(self._life, self._down, prepare, preparation)
        self._pause = Pause(self._life, lambda tombstone: on_end(self, tombstone))
        self._crashes = 0

    # ── what others see and ask ──────────────────────────────────────────────

    @property
    def record(self) -> InstanceRecord:
        return self._life.record

    @property
    def redactor(self) -> Redactor:
        return self._life.ledger.redactor

    @property
    def name(self) -> str:
        return self._life.name

    @property
    def untouchable(self) -> str | None:
        return self._life.untouchable

    @property
    def known(self) -> bool:
        return self._life.known

    @property
    def reserved(self) -> bool:
        return self._life.reserved

    @property
    def ready(self) -> bool:
        return self._life.ready

    @property
    def readies(self) -> int:
        return self._life.readies

    @property
    def over(self) -> bool:
        return self._life.over

    @property
    def over_for_good(self) -> bool:
        """It has ended, or an attempt failed and cannot be undone."""
        return self.tombstone is not None or (self._life.over and self.failure is not None)

    @property
    def unheeded(self) -> bool:
        """It was asked for another start when its end had begun already."""
        command = self._life.command
        return command is not None and not command.final

    @property
    def asked(self) -> bool:
        """Somebody asked something of it, since this daemon has it."""
        return self._life.asked

    @property
    def goes_on(self) -> bool:
        return self._life.goes_on

    @property
    def failure(self) -> LaunchFailure | None:
        return self._life.failure

    @property
    def refusal(self) -> LifecycleError | None:
        return self._life.refusal

    @property
    def tombstone(self) -> Tombstone | None:
        return self._life.tombstone

    def view(self) -> InstanceView:
        if self.tombstone is not None:
            return tombstone_view(self.tombstone)
        attempt = self._life.attempt
        return living_view(self.record, attempt.liveness, attempt.health, self._life.house.now())

    def state(self, now: Now) -> InstanceState:
        """As in the view, for who wants nothing else, and of hundreds at once."""
        life = self._life
        if life.tombstone is not None:
            return "exited"
        return state_of(life.ledger.record, life.attempt.liveness, life.attempt.health, now)

    async def members(self) -> tuple[MemberProcess, ...] | None:
        """The living processes of a ready engine; ``None`` while its tree is on its way out.

        Raises ``CannotTellError``, and ``ClosedResourceError`` when it ended meanwhile.
        """
        running = self._life.attempt.running
        if running is None or self._is_leaving():
            return None
        seen = await running.members()
        return None if self._is_leaving() else seen

    async def tree(self) -> tuple[MemberProcess, ...]:
        """The living processes of its tree, whatever it is doing; none where it has none yet.

        Raises like ``members``.
        """
        running = self._life.attempt.running
        return () if running is None else await running.members()

    async def page(self, path: str, *, limit: int, within_s: float) -> Reply:
        """A page of the engine's own. Raises ``Miss`` where it cannot be had."""
        return await self._life.attempt.page(path, limit=limit, within_s=within_s)

    def _is_leaving(self) -> bool:
        return self._life.attempt.exit is not None or self._life.command is not None

    def publish(self, event: Event) -> None:
        """Say something about this instance."""
        self._life.ledger.publish(event)

    async def put_back_record(self) -> None:
        """Where its file is gone although nothing here removed it."""
        await self._life.ledger.put_back()

    async def until(self, fact: Callable[["Instance"], bool]) -> None:
        """Return once ``fact`` holds. Facts change only where the task says so."""
        await self._life.until(lambda: fact(self))

    def lay_down(self, tombstone: Tombstone) -> None:
        """Of a pinned hold: it was released, and no task of its own can say so."""
        self._pause.lay_down(tombstone)

    async def unjudged(self) -> str | None:
        """Why nobody can tell whether its engine lives, looked at now; ``None`` where one can."""
        return await self._life.attempt.unjudged()

    def vouch(self) -> None:
        """It is gone, says somebody who knows: its record goes, if it still cannot be judged."""
        self._life.vouch()

    def order(self, command: Command) -> None:
        """Note a command. A stop outranks a restart; else the first one counts."""
        self._life.order(command)

    # ── the line ─────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Attempt after attempt, until none is to follow. Returns when the record is gone."""
        life = self._life
        while life.tombstone is None:
            if life.supervision.intent == "waiting":
                life.become_known()
                await self._pause.sit_out()
            elif self._pause.was_stopped:
                life.become_known()
                await self._pause.end_stopped()
            else:
                await self._follow(await self._try())

    def let_go(self) -> None:
        """When the daemon leaves: give back what it holds for the engine, which runs on."""
        self._life.attempt.close()

    def rewind(self) -> None:
        """After a crash of the task: the next ``run`` takes up the record."""
        life = self._life
        life.fresh = False
        life.forget_wait()
        self._crashes += 1
        if self._crashes > PATIENCE_CRASHES:
            life.known = True
            life.refusal = CannotTell(
                f"the supervisor fails at {self.name} again and again; see its log and the event "
                "task-crashed"
            )
            life.tell()

    async def _try(self) -> LaunchFailure | None:
        """One attempt, to the end of its tree. Says how it failed, if it was not told to end."""
        life = self._life
        while True:
            try:
                if not life.fresh:
                    await self._up.attach()
                life.become_known()
                with life.interruptible():
                    await (self._up.launch() if life.fresh else self._up.take_up())
                cause = await self._stay()
            except Problem as problem:
                cause = life.failed(problem.failure)
            if await self._down.bring_down(cause):
                return cause.failure
            # It was not touched, so it is taken up again: perhaps it was not even judged before.

    async def _stay(self) -> Cause:
        """With a ready engine, until there is a cause to bring it down."""
        life, attempt = self._life, self._life.attempt
        if cause := life.cause:
            return cause
        if attempt.liveness == "gone" and not attempt.met:
            return await self._reaped()
        with life.interruptible():
            unwell = await attempt.watch(self._unhealthy_limit, self._tell_exit)
        if life.command is None and attempt.exit is not None:
            await self._tell_exit(attempt.exit)
        if cause := life.cause:
            return cause
        return Cause("unhealthy", unwell, again=True)

    async def _tell_exit(self, exit_: Exit) -> None:
        """Nobody told it to end: that is news, before anything is done about it."""
        life = self._life
        if life.command is None and life.last_words is None:
            life.last_words = await exited_early(life.house, life.ledger, exit_)
            life.ledger.tell_once(
                Exited(
                    exit_code=exit_.exit_code,
                    signal=exit_.signal,
                    log_tail=life.last_words.log_tail,
                    uptime_ms=life.uptime_ms(),
                    diagnosis=life.last_words.diagnosis,
                )
            )
            # News before deeds: these would keep the journal's thread from its line.
            await life.ledger.settle()

    async def _reaped(self) -> Cause:
        """Found dead, after it had been ready under an earlier daemon."""
        life, exit_ = self._life, self._life.attempt.exit
        assert exit_ is not None, "taking up looked"
        if Exited not in life.ledger.told:
            life.ledger.tell_once(
                Reaped(exit_code=exit_.exit_code, signal=exit_.signal, devices=life.record.devices)
            )
        life.last_words = await exited_early(life.house, life.ledger, exit_)
        return Cause("exit", life.last_words)

    async def _follow(self, failure: LaunchFailure | None) -> None:
        """What comes after an attempt whose tree is gone: another one, or the end."""
        life, pause = self._life, self._pause
        command, supervision = life.take_command(), life.supervision
        if command is not None and not command.final:
            await pause.begin(1, 0, "requested", None)
        elif command is not None or failure is None or not life.reserved:
            # Without a record there is nothing that could be tried again.
            await pause.end(failure if command is None or not life.ready else None)
        elif supervision.boot_id != life.house.clock.boot_id:
            await self._after_boot(failure)
        else:
            attempt = 1 if self._was_stable() else supervision.attempt
            decision = decide(
                life.policy,
                life.house.config.restart,
                failure,
                attempt=attempt,
                chance=random.random(),
                was_ready=life.ready,
            )
            match decision:
                case Retry():
                    first = None if attempt == 1 else supervision.first_failure
                    failures = first or failure, failure
                    await pause.begin(attempt + 1, decision.delay_ms, decision.reason, failures)
                case GiveUp():
                    await pause.give_up(decision, attempt, failure, first=attempt == 1)
                case None:
                    await pause.end(None if life.ready else failure)

    async def _after_boot(self, failure: LaunchFailure) -> None:
        """The machine was restarted under it: only ``always`` means that it comes back."""
        if self._life.policy == "always":
            await self._pause.begin(1, 0, "boot", (failure, failure))
        else:
            await self._pause.end(None if self._life.ready else failure)

    @property
    def _unhealthy_limit(self) -> int | None:
        limit = self._life.house.config.restart.unhealthy_ms
        return None if self._life.policy == "never" else limit or None

    def _was_stable(self) -> bool:
        """Whether it was seen to be ready for long enough. What nobody saw does not count."""
        since, until = self._life.supervision.ready_monotonic_ns, self._life.attempt.ended_ns
        if since is None or until is None:
            return False
        return until - since >= self._life.house.config.restart.stable_ms * 1_000_000
