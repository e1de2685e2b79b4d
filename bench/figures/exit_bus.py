"""How long after an engine's death its ``exited`` event is at a subscriber in the same process.

Counted from the moment at which a watcher in another process found the pidfd readable, which is
what the daemon waits for too. Counted from the kill, which is beyond doubt, it stands beside.
Half of the engines are the process's own children; the others were
launched by a daemon that was then killed, and taken up from its records.
"""

from collections.abc import Iterable
from random import uniform
from time import monotonic_ns

import anyio

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import daemon, launch_params, pid_of
from bench.parts.helpers import Observer, observer
from bench.parts.inside import Inside, inside
from bench.stage import Stage
from supervisor.bus import Subscription

OWN, ADOPTED = "own", "adopted"
KILL = "from the kill"
PATIENCE_S = 5.0
BOUNDS = (Bound(stat="p50", limit=1), Bound(stat="p99", limit=5))


async def until_exited(place: Subscription, name: str) -> int:
    """The moment at which the event was in hand."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            events = await place.next()
            at = monotonic_ns()
            for published in events:
                event = published.event
                if event.instance == name and event.__struct_config__.tag == "exited":
                    return at


async def lag(own: Inside, watcher: Observer, name: str) -> tuple[float, float]:
    """Milliseconds until the news of this engine's death: from the death, and from its kill."""
    place = own.bus.subscribe()
    watcher.order(pid_of(own.supervisor.get(name)))
    heard = await until_exited(place, name)
    death = watcher.report()
    return (heard - death.seen_ns) / 1e6, (heard - death.killed_ns) / 1e6


async def _measure(stage: Stage, count: int) -> list[Row]:
    lags: dict[str, list[tuple[float, float]]] = {OWN: [], ADOPTED: []}
    flags = stage.engine.flags()
    with observer() as watcher:
        async with inside(stage.sub("o")) as own, inside(stage.sub("a")) as adopted:
            for number in range(count):
                params = launch_params(stage.engine, f"e{number}", flags, wait=True)
                await own.supervisor.launch(params)
            await anyio.sleep(0.5)
            for number in range(count):
                for kind, host in ((OWN, own), (ADOPTED, adopted)):
                    lags[kind].append(await lag(host, watcher, f"e{number}"))
                    await anyio.sleep(uniform(0.02, 0.05))
    return [
        row(
            f"engine dies, until `exited` in process ({kind})",
            "ms",
            [since_death for since_death, _ in samples[1:]],
            *BOUNDS,
            beside={KILL: [since_kill for _, since_kill in samples[1:]]},
        )
        for kind, samples in lags.items()
    ]


def measure(stage: Stage) -> Iterable[Row]:
    count = stage.pick(tiny=3, quick=25, default=101, full=200)
    with daemon(stage.sub("a"), stage.engine) as earlier:
        earlier.fill(count)
        earlier.kill()
    return anyio.run(_measure, stage, count)


FIGURE = Figure(name="exit-bus", title="Exit lag in process", measure=measure)
