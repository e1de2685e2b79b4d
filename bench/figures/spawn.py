"""How long the loop is blocked around a spawn, as somebody outside who asks for something sees it.

A metronome beside the bench sends the time every millisecond, and the loop notes how late each
beat is heard. A sample is the latest beat within a window; windows with a spawn in them take turns
with windows without one, which show what the machine itself costs. The launcher alone is the
figure of the design; whole launches (records, journal, probes) show what else runs on the loop.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count

import anyio

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import launch_params
from bench.parts.helpers import beside
from bench.parts.inside import Inside, inside
from bench.stage import Stage
from supervisor.contracts.engine import HealthCheck, LaunchPlan
from supervisor.launchers.base import SpawnTicket

CONTROL = "no spawn"
BURST = 20
WINDOW_S = 0.08
"""Longer than a launch takes, its stub and its first probe included."""
BURST_S = 1.2


class Ear:
    """Hears the beats on the loop."""

    def __init__(self, beats: socket.socket) -> None:
        self._beats = beats
        self._worst = 0

    def hear(self) -> None:
        try:
            while True:
                late = int(self._beats.recv(32))
                self._worst = max(self._worst, time.monotonic_ns() - late)
        except BlockingIOError:
            return

    async def worst(self, window_s: float, during: Callable[[], Awaitable[None]]) -> float:
        """Milliseconds by which the latest beat of a window was late."""
        self.hear()
        self._worst = 0
        ends = time.monotonic() + window_s
        await during()
        await anyio.sleep(max(0.002, ends - time.monotonic()))
        return self._worst / 1e6


@asynccontextmanager
async def metronome(stage: Stage) -> AsyncIterator[Ear]:
    path = str(stage.folder / "beat")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as beats:
        beats.bind(path)
        beats.setblocking(False)
        ear, loop = Ear(beats), asyncio.get_running_loop()
        loop.add_reader(beats, ear.hear)
        try:
            with beside("metronome.py", path):
                await anyio.sleep(0.2)
                yield ear
        finally:
            loop.remove_reader(beats)


async def nothing() -> None:
    """What a control's window holds."""


class Spawns:
    """The things that are done in the windows."""

    def __init__(self, stage: Stage, own: Inside) -> None:
        self._stage, self._own = stage, own
        self._numbers = count()

    async def by_launcher(self) -> None:
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
        (await gated.open()).close()

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

    async def _stop(self, name: str) -> None:
        await self._own.supervisor.stop(name, nonce=None, grace_ms=1_000)


async def _measure(stage: Stage) -> list[Row]:
    rounds = stage.pick(tiny=2, quick=8, default=40, full=150)
    bursts = stage.pick(tiny=0, quick=1, default=5, full=10)
    late: dict[str, list[float]] = {"launcher": [], "launch": [], CONTROL: []}
    burst: dict[str, list[float]] = {"burst": [], CONTROL: []}
    async with inside(stage.sub("i")) as own, metronome(stage) as ear:
        spawns = Spawns(stage, own)
        for turn in range(rounds + 1):
            spawned = await ear.worst(WINDOW_S, spawns.by_launcher)
            launched = await ear.worst(WINDOW_S, spawns.launch)
            idle = await ear.worst(WINDOW_S, nothing)
            if turn:
                late["launcher"].append(spawned)
                late["launch"].append(launched)
                late[CONTROL].append(idle)
            await spawns.clear()
        for _ in range(bursts):
            burst["burst"].append(await ear.worst(BURST_S, spawns.burst))
            burst[CONTROL].append(await ear.worst(BURST_S, nothing))
            await spawns.clear()
    return list(_rows(late, burst))


def _rows(late: dict[str, list[float]], burst: dict[str, list[float]]) -> Iterable[Row]:
    beside_ = {CONTROL: late[CONTROL]}
    bound = Bound(stat="p50", limit=1, beyond=CONTROL)
    yield row("loop late around one spawn", "ms", late["launcher"], bound, beside=beside_)
    yield row("loop late around one whole launch", "ms", late["launch"], beside=beside_)
    if burst["burst"]:
        yield row(
            f"loop late in a burst of {BURST} launches",
            "ms",
            burst["burst"],
            Bound(stat="p50", limit=10),
            beside={CONTROL: burst[CONTROL]},
        )


def measure(stage: Stage) -> Iterable[Row]:
    return anyio.run(_measure, stage)


FIGURE = Figure(name="spawn", title="Loop blocked by a spawn", measure=measure)
