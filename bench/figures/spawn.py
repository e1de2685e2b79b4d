"""How long the loop is away from its clients around a spawn.

A sample is the worst of a window: the longest turn of the loop, and the latest beat of a metronome
outside (see ``loopwatch``). Windows with a spawn in them take turns with windows without one,
which show what the machine itself costs. The launcher alone is the figure of the design; whole
launches (records, journal, probes) show what else runs on the loop.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count

import anyio

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import launch_params
from bench.parts.inside import Inside, inside
from bench.parts.loopwatch import LoopWatch, Worst
from bench.parts.pauses import pauses
from bench.stage import Stage
from supervisor.contracts.engine import HealthCheck, LaunchPlan, StopStyle
from supervisor.launchers.base import Running, SpawnTicket

BURST = 20
WINDOW_S = 0.08
"""Longer than a launch takes, its stub and its first probe included."""
BURST_S = 1.2
IDLE, SPAWN, LAUNCH = "no spawn", "spawn", "launch"


class Spawns:
    """The things that are done in the windows."""

    def __init__(self, stage: Stage, own: Inside) -> None:
        self._stage, self._own = stage, own
        self._numbers = count()
        self._bare: list[Running] = []

    async def nothing(self) -> None:
        """What a control's window holds."""

    async def spawn(self) -> None:
        launcher = self._own.house.launchers["process"]
        number = next(self._numbers)
        plan = LaunchPlan(
            kind="process",
            argv=(self._stage.engine.path, *self._stage.engine.flags()),
            env={},
            ports=(),
            mounts=(),
            devices=(),
            health=HealthCheck(path="/health", ready_deadline_ms=1, interval_ms=1),
        )
        ticket = SpawnTicket(
            name=f"l{number}",
            nonce=f"{number:032x}",
            log_path=str(self._stage.folder / "log"),
            env={},
        )
        gated = await launcher.prepare(plan, ticket)
        self._bare.append(await gated.open())

    async def launch(self) -> None:
        name = f"e{next(self._numbers)}"
        params = launch_params(self._stage.engine, name, self._stage.engine.flags(), wait=True)
        await self._own.supervisor.launch(params)

    async def burst(self) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(BURST):
                tasks.start_soon(self.launch)

    async def clear(self) -> None:
        """End what was launched, outside of any window."""
        async with anyio.create_task_group() as tasks:
            for view in self._own.supervisor.list():
                tasks.start_soon(self._stop, view.record.name)
            for running in self._bare:
                tasks.start_soon(running.stop, StopStyle(), 1_000)
        while self._bare:
            self._bare.pop().close()

    async def _stop(self, name: str) -> None:
        await self._own.supervisor.stop(name, nonce=None, grace_ms=1_000)


Window = tuple[str, float, Callable[[], Awaitable[None]]]


async def in_windows(
    watch: LoopWatch, spawns: Spawns, rounds: int, windows: tuple[Window, ...]
) -> dict[str, list[Worst]]:
    """The worst of each window, round by round, in turns; the first round only warms up."""
    found: dict[str, list[Worst]] = {name: [] for name, _, _ in windows}
    for turn in range(rounds + 1):
        first = turn % len(windows)
        for name, length_s, during in windows[first:] + windows[:first]:
            worst = await watch.worst(length_s, during)
            if turn:
                found[name].append(worst)
        await spawns.clear()
    return found


async def _measure(stage: Stage, watch: LoopWatch) -> list[Row]:
    rounds = stage.pick(tiny=2, quick=6, default=40, full=150)
    bursts = stage.pick(tiny=1, quick=1, default=5, full=10)
    async with inside(stage.sub("i")) as own, watch.hearing(stage.folder / "beat"):
        spawns = Spawns(stage, own)
        single = (
            (SPAWN, WINDOW_S, spawns.spawn),
            (LAUNCH, WINDOW_S, spawns.launch),
            (IDLE, WINDOW_S, spawns.nothing),
        )
        many = ((LAUNCH, BURST_S, spawns.burst), (IDLE, BURST_S, spawns.nothing))
        one = await in_windows(watch, spawns, rounds, single)
        with pauses() as paused:
            burst = await in_windows(watch, spawns, bursts, many)
    return [
        *_rows("around one spawn", one[SPAWN], one, Bound(stat="p50", limit=1)),
        *_rows("around one whole launch", one[LAUNCH], one),
        *_rows(
            f"in {BURST} launches",
            burst[LAUNCH],
            burst,
            Bound(stat="p50", limit=10),
            notes=paused.text(),
        ),
    ]


def _rows(
    what: str,
    worst: list[Worst],
    control: Mapping[str, list[Worst]],
    *bounds: Bound,
    notes: Iterable[str] = (),
) -> Iterable[Row]:
    """The turn is the loop's own doing and has the bound; the beat explains it."""
    idle = control[IDLE]
    turns, beats = {IDLE: [one.turn for one in idle]}, {IDLE: [one.beat for one in idle]}
    long = [one.turn for one in worst]
    yield row(f"longest turn {what}", "ms", long, *bounds, beside=turns, notes=notes)
    yield row(f"latest beat {what}", "ms", [one.beat for one in worst], beside=beats)


def measure(stage: Stage) -> Iterable[Row]:
    watch = LoopWatch()
    return anyio.run(_measure, stage, watch, backend_options={"loop_factory": watch.make_loop})


FIGURE = Figure(name="spawn", title="Loop blocked by a spawn", measure=measure)
