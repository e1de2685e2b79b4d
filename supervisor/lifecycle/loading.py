"""What an engine's log tells while it starts: phases for people, progress for its deadline."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import anyio
from msgspec import UNSET

from supervisor.clock import rfc3339
from supervisor.contracts.engine import EngineId
from supervisor.contracts.event import Phase
from supervisor.engines.diagnosis import is_doomed
from supervisor.engines.phases import PhaseSeen, is_request, phase_of
from supervisor.lifecycle.deadline import Deadline, cap_ms
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger
from supervisor.logs.growth import Grown

RECORD_S = 3.0
"""Between two writes of a record whose deadline moves."""
DETAIL_S = 2.0
"""Between two events that tell of the same phase how far it has come."""
EVENTS_PER_S = 4
DETAIL_CHARS = 200


@dataclass(frozen=True, slots=True)
class Signs:
    """What some new lines mean."""

    alive: bool
    """They are more than answers to our own probes."""
    phases: tuple[PhaseSeen, ...]
    """In order; of a phase that goes on, only what it came to."""
    doomed: bool = False
    """It will stay, and never be ready."""


def sift(engine: EngineId) -> Callable[[tuple[str, ...]], Signs]:
    def of(lines: tuple[str, ...]) -> Signs:
        phases: list[PhaseSeen] = []
        alive = doomed = False
        for line in lines:
            doomed = doomed or is_doomed(engine, line)
            seen = phase_of(engine, line)
            # A bar that has no line end of its own may share its line with a request.
            if seen is not None or (line.strip() and not is_request(line)):
                alive = True
            if seen is not None:
                if phases and phases[-1].phase == seen.phase:
                    phases.pop()
                phases.append(seen)
        return Signs(alive, tuple(phases[-EVENTS_PER_S:]), doomed)

    return of


class Loading:
    """One engine on its way to readiness, as its log shows it."""

    def __init__(self, house: House, ledger: Ledger, budget_ms: int) -> None:
        """``budget_ms`` is the deadline that the launch began with."""
        self._house = house
        self._ledger = ledger
        supervision = ledger.supervision
        launch = supervision.launch
        assert supervision.deadline_monotonic_ns is not None, "written with the handle"
        since = supervision.launched_monotonic_ns or house.clock.monotonic_ns()
        self.deadline = Deadline(
            supervision.deadline_monotonic_ns,
            launch.stall_ms * 1_000_000 if launch.stall_ms else None,
            since + cap_ms(budget_ms, launch.ready_cap_ms or None) * 1_000_000,
        )
        self.doomed = anyio.Event()
        """Set once the log says that waiting is in vain."""
        self._position = supervision.log_position or 0
        self._told: PhaseSeen | None = None
        self._told_ns = 0
        self._tokens = float(EVENTS_PER_S)
        self._refilled_ns = house.clock.monotonic_ns()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator["Loading"]:
        """Inside, the log is read as it grows. It was looked at once when this is entered, so that
        an adopted engine is not judged by what was known of it before.
        """
        path = self._ledger.supervision.log_path
        if path is None:
            yield self
            return
        engine = self._ledger.record.engine
        async with self._house.logs.reading(path, self._position, sift(engine), self.heard):
            yield self

    def deadline_ns(self) -> int:
        return self.deadline.ends_ns

    def heard(self, grown: Grown[Signs]) -> None:
        """Something new is in the log."""
        self._position = grown.cursor
        now = self._house.clock.monotonic_ns()
        if grown.found.alive:
            self.deadline.progress(now)
        if grown.found.doomed:
            self.doomed.set()
        for seen in grown.found.phases:
            self._tell(seen, now)

    def _tell(self, seen: PhaseSeen, now: int) -> None:
        told = self._told
        if seen == told:
            return
        if told and told.phase == seen.phase and now - self._told_ns < DETAIL_S * 1e9:
            return
        self._tokens += (now - self._refilled_ns) / 1e9 * EVENTS_PER_S
        self._tokens, self._refilled_ns = min(self._tokens, float(EVENTS_PER_S)), now
        if self._tokens < 1:
            return
        self._tokens -= 1
        self._told, self._told_ns = seen, now
        detail = self._ledger.redactor.text(seen.detail)[:DETAIL_CHARS] if seen.detail else UNSET
        self._ledger.publish(Phase(phase=seen.phase, detail=detail))

    async def keep_record(self) -> None:
        """Write a deadline that moved, once in a while, so that adoption goes on with it."""
        if not self.deadline.moves:
            return
        clock, ledger = self._house.clock, self._ledger
        while True:
            await anyio.sleep(RECORD_S)
            ends = self.deadline.ends_ns
            if ends == ledger.supervision.deadline_monotonic_ns:
                continue
            left = timedelta(microseconds=(ends - clock.monotonic_ns()) // 1_000)
            # What is on disk and what is in memory stay one, whatever ends this task.
            with anyio.CancelScope(shield=True):
                await ledger.write_or_warn(
                    ledger.draft(
                        record={"ready_deadline_at": rfc3339(clock.wall() + left)},
                        deadline_monotonic_ns=ends,
                        log_position=self._position,
                    )
                )
