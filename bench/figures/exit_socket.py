"""How long after an engine's death its ``exited`` event is at a subscriber on the socket.

Counted as in ``exit-bus``. Two daemons: one whose engines are its children, one that was killed
and begun again, so that its engines are somebody else's. supervisord (an event listener), circus
(its pub/sub) and s6 (its event directories) have the same program, and lose one child each in turns
with ours; they are asked for fewer deaths, because the first two take seconds over one.
"""

import random
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from bench.figure import Bound, Figure, Row, row
from bench.parts.circus import circus
from bench.parts.daemon import daemon
from bench.parts.helpers import Death, Observer, observer
from bench.parts.s6 import s6
from bench.parts.subscriber import subscriber
from bench.parts.supervisord import supervisord
from bench.stage import Stage

OWN, ADOPTED = "own", "adopted"
SUPERVISORD, CIRCUS, S6 = "supervisord", "circus", "s6"
PEER_PATIENCE_S = 8.0
BOUNDS = (Bound(stat="p50", limit=2), Bound(stat="p99", limit=10))


class Side:
    """Somebody's processes, and how to learn when they heard of a death."""

    def __init__(self, pids: dict[str, int], heard: Callable[[str], int | None]) -> None:
        self._left = sorted(pids.items())
        self._heard = heard
        self._deaths: dict[str, Death] = {}
        self.untold = 0

    def kill_one(self, watcher: Observer) -> None:
        if self._left:
            name, pid = self._left.pop()
            self._deaths[name] = watcher.kill(pid)

    def lags(self) -> list[float]:
        """Milliseconds from the deaths; those that nobody told of in time are left out."""
        heard = [(self._heard(name), death) for name, death in self._deaths.items()]
        self.untold = sum(at is None for at, _ in heard)
        return [(at - death.seen_ns) / 1e6 for at, death in heard if at is not None]


def own_side(stage: Stage, stack: ExitStack, count: int, *, adopted: bool) -> Side:
    one = stack.enter_context(daemon(stage.sub(ADOPTED if adopted else OWN), stage.engine))
    pids = one.fill(count)
    if adopted:
        one.kill()
        one.start()
    events = stack.enter_context(subscriber(one.socket, "exited"))
    return Side(pids, lambda name: events.arrival("exited", name))


def peer_sides(stage: Stage, stack: ExitStack, count: int) -> dict[str, Side]:
    sides = {}
    first = stack.enter_context(
        supervisord(stage.peers, stage.sub(SUPERVISORD), stage.engine, count)
    )
    if first is not None:
        news = first.news
        sides[SUPERVISORD] = Side(first.pids(), lambda name: news.heard(name, PEER_PATIENCE_S))
    third = stack.enter_context(s6(stage.peers, stage.sub(S6), stage.engine, count))
    if third is not None:
        word = third.news
        pids = stack.enter_context(third.told())
        sides[S6] = Side(pids, lambda name: word.heard(name, PEER_PATIENCE_S))
    if stage.scale == "quick":  # it takes up to five seconds over a death
        return sides
    second = stack.enter_context(circus(stage.peers, stage.sub(CIRCUS), stage.engine, count))
    if second is not None:
        told = second.news
        sides[CIRCUS] = Side(second.pids, lambda name: told.heard(name, PEER_PATIENCE_S))
    return sides


def measure(stage: Stage) -> Iterable[Row]:
    count = stage.pick(tiny=2, quick=25, default=101, full=200)
    peer_count = stage.pick(tiny=0, quick=6, default=16, full=30)
    stack = stage.closing
    sides = {
        OWN: own_side(stage, stack, count, adopted=False),
        ADOPTED: own_side(stage, stack, count, adopted=True),
    }
    if peer_count:
        sides |= peer_sides(stage, stack, peer_count)
    watcher = stack.enter_context(observer())
    time.sleep(0.5)
    for turn in range(count):
        for kind, side in sides.items():
            if kind in (OWN, ADOPTED) or turn % (count // peer_count) == 0:
                side.kill_one(watcher)
                time.sleep(random.uniform(0.02, 0.06))
    lags = {kind: side.lags() for kind, side in sides.items()}
    peers = {kind: samples for kind, samples in lags.items() if kind not in (OWN, ADOPTED)}
    notes = [
        f"{kind} did not tell of {side.untold} deaths within {PEER_PATIENCE_S:g} s"
        for kind, side in sides.items()
        if side.untold
    ]
    for kind in (OWN, ADOPTED):
        yield row(
            f"engine dies, until `exited` at a socket ({kind})",
            "ms",
            lags[kind],
            *BOUNDS,
            beside=peers,
            notes=notes,
        )


FIGURE = Figure(name="exit-socket", title="Exit lag at a socket", measure=measure)
