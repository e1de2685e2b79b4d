"""The wait for an engine's first success, up to a deadline that may move."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import anyio

from supervisor.health.outcome import MissKind, NotReady, Outcome, Ready
from supervisor.health.pacing import Pace

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Expired:
    """The deadline passed, and a probe begun after it failed too."""

    last: NotReady
    waited_ms: int


class Asker(Protocol):
    """What of a ``Probe`` the wait needs."""

    async def readiness(self, within_s: float | None = None) -> Outcome: ...


async def wait_ready(
    probe: Asker,
    *,
    interval_ms: int,
    since_ns: int,
    deadline_ns: Callable[[], int],
    monotonic_ns: Callable[[], int],
    pace: Pace,
    on_first: Callable[[NotReady], None] | None = None,
) -> Ready | Expired:
    """Probe until the engine is ready, or until the deadline has passed and one more probe missed.

    A daemon that was stopped or starved past the deadline therefore still asks once before it
    condemns an engine that has been ready all along. A probe in flight ends at the deadline, and
    the last one has its whole timeout: the verdict comes within the deadline plus one timeout.

    ``since_ns`` paces the probes: the start of the engine, which is earlier than this call for an
    adopted one. ``deadline_ns`` is asked anew each time, for progress may extend it.
    ``on_first`` hears at once of each kind of miss that this wait had not met before.
    """
    met: set[MissKind] = set()
    with pace.joined():
        while True:
            left_ns = deadline_ns() - monotonic_ns()
            is_last = left_ns <= 0
            outcome = await probe.readiness(None if is_last else left_ns / _NS)
            if isinstance(outcome, Ready):
                return outcome
            if outcome.kind not in met:
                met.add(outcome.kind)
                if on_first is not None:
                    on_first(outcome)
            now = monotonic_ns()
            if is_last and deadline_ns() <= now:
                return Expired(outcome, (now - since_ns) // 1_000_000)
            pause = pace.pause_s((now - since_ns) / _NS, interval_ms)
            await anyio.sleep(min(pause, max(deadline_ns() - now, 0) / _NS))
