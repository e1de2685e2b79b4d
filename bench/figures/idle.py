"""What a supervisor costs the host while nothing happens: many ready engines, all at rest.

Ours asks each engine every 10 s and looks at all trees as often, so a sample is a window of 10 s.
It is alone on the machine, for it looks through all processes that there are; then the peers watch
as many of the same program, all in the same windows. None of them asks anything. All processes of a
supervisor count (see ``bench.parts.cost``), engines do not.
"""

import time
from collections.abc import Iterable
from itertools import pairwise

from bench.figure import Bound, Figure, Row, row
from bench.parts.circus import circus
from bench.parts.cost import memory_mb, spent, supervisors
from bench.parts.daemon import daemon
from bench.parts.s6 import s6
from bench.parts.supervisord import supervisord
from bench.stage import Stage

OURS, SUPERVISORD, CIRCUS, S6 = "ours", "supervisord", "circus", "s6"
TARGET_ENGINES = 200
SETTLE_S = 1.0
WINDOW_S, PEER_WINDOW_S = 10.0, 5.0
"""The slowest of the peers looks every five seconds."""


def peers(stage: Stage, engines: int) -> dict[str, int]:
    """The first process of each, whose engines run."""
    closing, engine = stage.closing, stage.engine
    found = {}
    first = closing.enter_context(supervisord(stage.peers, stage.sub(SUPERVISORD), engine, engines))
    if first is not None:
        found[SUPERVISORD] = first.pid
    second = closing.enter_context(s6(stage.peers, stage.sub(S6), engine, engines))
    if second is not None:
        found[S6] = second.pid
    third = closing.enter_context(circus(stage.peers, stage.sub(CIRCUS), engine, engines))
    if third is not None:
        found[CIRCUS] = third.pid
    return found


class Costs:
    """In windows of some seconds, of each supervisor."""

    def __init__(self) -> None:
        self.cpu: dict[str, list[float]] = {}
        self.wakeups: dict[str, list[float]] = {}
        self.rss: dict[str, list[float]] = {}
        self.pss: dict[str, list[float]] = {}

    def take(self, sides: dict[str, list[int]], windows: int, window_s: float) -> None:
        marks = {name: [spent(pids)] for name, pids in sides.items()}
        for _ in range(windows):
            time.sleep(window_s)
            for name, pids in sides.items():
                marks[name].append(spent(pids))
        for name, found in marks.items():
            pairs = list(pairwise(found))
            self.cpu[name] = [now.percent_since(then) for then, now in pairs]
            self.wakeups[name] = [now.wakeups_since(then) for then, now in pairs]
            rss, pss = memory_mb(sides[name])
            self.rss[name], self.pss[name] = [rss], [pss]


def measure(stage: Stage) -> Iterable[Row]:
    engines = stage.pick(tiny=2, quick=30, default=TARGET_ENGINES)
    windows = stage.pick(tiny=1, quick=1, default=3, full=6)
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine))
    own.fill(engines)
    time.sleep(SETTLE_S)
    costs = Costs()
    ours = supervisors(own.pid, stage.engine.path)
    costs.take({OURS: ours}, windows, 1 if stage.scale == "tiny" else WINDOW_S)
    if stage.scale != "tiny":
        roots = peers(stage, engines)
        time.sleep(SETTLE_S)
        theirs = {name: supervisors(pid, stage.engine.path) for name, pid in roots.items()}
        costs.take(theirs, windows, PEER_WINDOW_S)
    whole = engines >= TARGET_ENGINES
    notes = () if whole else (f"the design's target is for {TARGET_ENGINES}: see the default",)
    of = f"{engines} ready engines, idle"
    busy = (Bound(stat="p50", limit=2),) if whole else ()
    room = (Bound(stat="most", limit=60),) if whole else ()
    yield row(f"{of}: of a core", "%", costs.cpu.pop(OURS), *busy, beside=costs.cpu, notes=notes)
    yield row(f"{of}: wake-ups", "/s", costs.wakeups.pop(OURS), beside=costs.wakeups)
    yield row(f"{of}: resident", "MB", costs.rss.pop(OURS), *room, beside=costs.rss)
    yield row(f"{of}: shared pages in parts", "MB", costs.pss.pop(OURS), beside=costs.pss)


FIGURE = Figure(name="idle", title="Idle cost", measure=measure)
