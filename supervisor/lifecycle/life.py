"""What the parts of one instance's task share, and what everybody else may know about it.

The parts are told by what they do to an attempt: ``up``, ``down``, ``pause``. They hold nothing of
their own; this is what they hold in common. Only the instance's own task changes it, but for
``order``, which notes a command and interrupts the task's wait.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from supervisor.contracts.engine import StopStyle
from supervisor.contracts.event import LaunchFailed
from supervisor.contracts.failure import ExitedEarly, LaunchFailure
from supervisor.contracts.instance import (
    InstanceRecord,
    PinnedHandle,
    RestartPolicy,
    Supervision,
    Tombstone,
)
from supervisor.failures import to_event
from supervisor.instances.state import was_ready
from supervisor.lifecycle.attempt import Attempt
from supervisor.lifecycle.ending import Cause, Command, cause_of, unwinding
from supervisor.lifecycle.errors import LifecycleError
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger
from supervisor.lifecycle.told import Told


class Life:
    """Of one instance, from its reservation to its tombstone."""

    def __init__(
        self,
        house: House,
        record: InstanceRecord,
        style: StopStyle,
        told: Told,
        *,
        fresh: bool,
        untouchable: str | None,
    ) -> None:
        self.house = house
        self.ledger = Ledger(house, record, told)
        self.style = style
        self.attempt = Attempt(house, self.ledger, style)
        self.fresh = fresh
        """The next attempt is launched; else the record's is taken up."""
        self.untouchable = untouchable
        if untouchable is not None and not isinstance(record.ref, PinnedHandle):
            self.attempt.liveness = "unknown"
        self.command: Command | None = None
        self.asked = False
        """This daemon got a command for it."""
        self.vouched = False
        """Somebody says that it is gone, which nobody can look at."""
        self.last_words: ExitedEarly | None = None
        """Of a ready engine that ended by itself. They were told."""
        self.failure: LaunchFailure | None = None
        """Why an attempt that never got ready is undone; in the end, why the instance ended."""
        self.refusal: LifecycleError | None = None
        """Why the command that is held cannot be obeyed."""
        self.tombstone: Tombstone | None = None
        self.held_back = False
        """Its end waits for what nobody knows the time of: the tree may not be touched, or the
        record cannot be removed."""
        self.known = fresh or untouchable is not None or record.ref is None
        """Whether it was looked at, so that what the view says is seen and not assumed."""
        self.reserved = not fresh
        self.readies = int(was_ready(record))
        """How often it became ready, as far as this daemon knows."""
        self._doubted: str | None = None
        self._scope: anyio.CancelScope | None = None
        self._changed = anyio.Event()

    # ── facts ────────────────────────────────────────────────────────────────

    @property
    def record(self) -> InstanceRecord:
        return self.ledger.record

    @property
    def supervision(self) -> Supervision:
        return self.ledger.supervision

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
        return self.tombstone is not None or bool(self.attempt.stuck) or self.held_back

    @property
    def goes_on(self) -> bool:
        """It has a living engine that is not being ended, or another attempt will come."""
        if self.fresh or self.untouchable is not None:
            return True
        supervision = self.supervision
        if supervision.intent == "waiting":
            return self.policy == "always" or supervision.boot_id == self.house.clock.boot_id
        lives = self.known and self.record.ref is not None and self.attempt.liveness == "alive"
        return lives and supervision.intent != "stopping"

    @property
    def policy(self) -> RestartPolicy:
        return self.supervision.launch.restart or "never"

    @property
    def cause(self) -> Cause | None:
        """Why the present attempt has to come down, as far as the facts say so."""
        return cause_of(
            self.supervision,
            command=self.command,
            last_words=self.last_words,
            failure=self._first_failure,
        )

    def failed(self, failure: LaunchFailure) -> Cause:
        """The present attempt never got ready: because of this, unless something came first."""
        return unwinding(self._first_failure or failure, self.command)

    @property
    def _first_failure(self) -> LaunchFailure | None:
        told = self.ledger.told.get(LaunchFailed)
        return told.failure if isinstance(told, LaunchFailed) else self.failure

    async def until(self, fact: Callable[[], bool]) -> None:
        """Return once ``fact`` holds. Facts change only where ``tell`` says so."""
        while not fact():
            await self._changed.wait()

    def tell(self) -> None:
        """Everybody who waits for a fact looks again."""
        self._changed.set()
        self._changed = anyio.Event()

    # ── commands ─────────────────────────────────────────────────────────────

    def order(self, command: Command) -> None:
        """Note a command. A stop outranks a restart; else the first one counts, with the shortest
        grace that was asked for.
        """
        self.asked = True
        held = self.command
        outranks = held is None or (command.final and not held.final)
        if held is not None and not outranks and command.grace_ms is not None:
            usual = self.style.grace_ms if held.grace_ms is None else held.grace_ms
            if command.grace_ms < usual:
                self.command = Command(held.kind, command.grace_ms)
                self.tell()
        if outranks:
            self.command = command
            if not self.attempt.stuck:
                self.refusal = None
            if self._scope is not None:
                self._scope.cancel()
            self.tell()

    def vouch(self) -> None:
        """A stop that touches nothing, and takes a person's word where nobody can judge."""
        self.order(Command("stop", 0))
        self.vouched, self.refusal = True, None

    def resume(self, command: Command) -> None:
        """Go on obeying what an earlier daemon was told; a stop that came meanwhile outranks it."""
        if self.command is None or not self.command.final:
            self.command = command

    def take_command(self) -> Command | None:
        """The one that is held, which is dealt with now."""
        command, self.command = self.command, None
        return command

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Waits inside end early when a command comes (or has come already)."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            if self.command is not None:
                scope.cancel()
            try:
                yield
            finally:
                self._scope = None

    def forget_wait(self) -> None:
        """After a crash of the task, whose wait is gone with it."""
        self._scope = None

    # ── what all parts do ────────────────────────────────────────────────────

    def new_attempt(self) -> None:
        self.attempt.close()
        self.attempt = Attempt(self.house, self.ledger, self.style)
        self.last_words = None
        self.failure = None

    def become_known(self) -> None:
        if not self.known:
            self.known = True
            self.tell()

    def tell_failure(self, failure: LaunchFailure) -> None:
        """Each attempt says once why it failed."""
        supervision = self.supervision
        self.ledger.tell_once(
            to_event(
                failure,
                instance=self.name,
                nonce=self.record.nonce,
                attempt=supervision.attempt,
                log_path=supervision.log_path,
            )
        )

    def doubt(self, detail: str) -> None:
        """Once for as long as it is the same, however often it is looked at again."""
        if detail != self._doubted:
            self._doubted = detail
            self.ledger.warn("identity-unknown", detail)

    def uptime_ms(self) -> int:
        """Since the gate of the present attempt was opened."""
        launched = self.supervision.launched_monotonic_ns
        now = self.house.clock.monotonic_ns()
        return (now - (launched or now)) // 1_000_000
