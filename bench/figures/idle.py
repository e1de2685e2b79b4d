"""What a supervisor costs the host while nothing happens: many ready engines, all at rest.

Ours asks each engine every 10 s and looks at all trees as often, so a sample is a window of 10 s.
The peers watch as many of the same program in the very same windows; none of them asks anything.
All processes of a supervisor count (see ``bench.parts.cost``), engines do not.
"""

import time
from collections.abc import Iterable

from bench.figure import Bound, Figure, Row, row
from bench.parts.circus import circus
from bench.parts.cost import memory_mb, spent, supervisors
from bench.parts.daemon import daemon
from bench.parts.s6 import s6
from bench.parts.supervisord import supervisord
from bench.stage import Stage

OURS, SUPERVISORD, CIRCUS, S6 = "ours", "supervisord", "circus", "s6"
TARGET_ENGINES = 200
SETTLE_S = 3.0


def roots(stage: Stage, engines: int) -> dict[str, int]:
    """The first process of each supervisor, whose engines are ready."""
    closing, engine = stage.closing, stage.engine
    own = closing.enter_context(daemon(stage.sub("d"), engine))
    own.fill(engines)
    found = {OURS: own.pid}
    if stage.scale == "tiny":
        return found
    first = closing.enter_context(supervisord(stage.peers, stage.sub(SUPERVISORD), engine, engines))
    if first is not None:
        first.pids()
        found[SUPERVISORD] = first.pid
    second = closing.enter_context(circus(stage.peers, stage.sub(CIRCUS), engine, engines))
    if second is not None:
        found[CIRCUS] = second.pid
    third = closing.enter_context(s6(stage.peers, stage.sub(S6), engine, engines))
    if third is not None:
        found[S6] = third.pid
    return found


def measure(stage: Stage) -> Iterable[Row]:
    engines = stage.pick(tiny=2, quick=50, default=TARGET_ENGINES)
    windows = stage.pick(tiny=1, quick=1, default=3, full=6)
    window_s = stage.pick(tiny=1, quick=10, default=10)
    sides = {
        name: supervisors(pid, stage.engine.path) for name, pid in roots(stage, engines).items()
    }
    time.sleep(SETTLE_S if stage.scale != "tiny" else 0)
    marks = {name: [spent(pids)] for name, pids in sides.items()}
    for _ in range(windows):
        time.sleep(window_s)
        for name, pids in sides.items():
            marks[name].append(spent(pids))
    pairs = {name: list(zip(found[1:], found, strict=False)) for name, found in marks.items()}
    cpu = {name: [now.percent_since(then) for now, then in two] for name, two in pairs.items()}
    wakes = {name: [now.wakeups_since(then) for now, then in two] for name, two in pairs.items()}
    memory = {name: memory_mb(pids) for name, pids in sides.items()}
    rss = {name: [both[0]] for name, both in memory.items()}
    pss = {name: [both[1]] for name, both in memory.items()}
    whole = engines >= TARGET_ENGINES
    notes = () if whole else (f"the design's target is for {TARGET_ENGINES}: see the default",)
    of = f"{engines} ready engines, idle"
    cost = (Bound(stat="p50", limit=2),) if whole else ()
    room = (Bound(stat="most", limit=60),) if whole else ()
    yield row(f"{of}: of a core", "%", cpu.pop(OURS), *cost, beside=cpu, notes=notes)
    yield row(f"{of}: wake-ups", "/s", wakes.pop(OURS), beside=wakes)
    yield row(f"{of}: resident", "MB", rss.pop(OURS), *room, beside=rss)
    yield row(f"{of}: shared pages in parts", "MB", pss.pop(OURS), beside=pss)


FIGURE = Figure(name="idle", title="Idle cost", measure=measure)
