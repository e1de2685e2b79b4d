"""A thousand subscribers at the socket, one of which does not read: does it delay the others?

The server runs in the bench, its readers in a process beside it. Events come one by one, as they
do in life, and each is counted from its publication to each reader. Beside it stands the same
thousand without the stalled one; before that one's turn its socket is filled up, so that the
server has met the end of its patience.
"""

import json
import time
from collections.abc import Iterable

import anyio
import anyio.to_thread

from bench.figure import Bound, Figure, Row, row
from bench.parts.helpers import beside
from bench.parts.inside import Inside, inside
from bench.parts.pauses import pauses
from bench.stage import Stage
from supervisor.contracts.config import AccessConfig
from supervisor.contracts.event import Phase, Warning_
from supervisor.rpc.server import RpcServer
from supervisor.rpc.socket import listen

CONTROL = "none stalled"
PERIOD_S = 0.1
STUFFING = "x" * 15_000
STUFFED = 60
"""So many events of that size overflow a socket's buffer and the server's own mark."""


async def lags_of(own: Inside, path: str, readers: int, stalled: int, events: int) -> list[float]:
    """Milliseconds, of every event at every reader."""
    arguments = (path, str(readers), str(stalled), str(events))
    with beside("readers.py", *arguments) as process:
        output = process.stdout
        assert output is not None
        await anyio.to_thread.run_sync(output.readline)
        for _ in range(STUFFED if stalled else 0):
            own.bus.publish(Warning_(code="knob-dropped", detail=STUFFING))
            await anyio.sleep(0.02)
        await anyio.sleep(0.5)
        for _ in range(events):
            own.bus.publish(Phase(phase="beat", detail=str(time.monotonic_ns())))
            await anyio.sleep(PERIOD_S)
        lags = json.loads(await anyio.to_thread.run_sync(output.readline))
    if len(lags) != readers * events:
        raise RuntimeError(f"{len(lags)} of {readers * events} events arrived")
    return [lag / 1e6 for lag in lags]


async def _measure(stage: Stage) -> list[Row]:
    readers = stage.pick(tiny=10, quick=999, default=999)
    events = stage.pick(tiny=2, quick=8, default=20, full=60)
    rounds = stage.pick(tiny=1, quick=1, default=3, full=5)
    paused = stage.closing.enter_context(pauses())
    samples: dict[str, list[float]] = {"ours": [], CONTROL: []}
    async with inside(stage.sub("i")) as own:
        listener = listen(own.house.paths.socket, 0o600)
        async with RpcServer(own.supervisor, own.bus, listener, AccessConfig()):
            for _ in range(rounds):
                for kind, stalled in ((CONTROL, 0), ("ours", 1)):
                    samples[kind] += await lags_of(own, listener.path, readers, stalled, events)
    return [
        row(
            f"event at {readers} readers, one more stalled",
            "ms",
            samples["ours"],
            Bound(stat="p50", limit=5, beyond=CONTROL),
            Bound(stat="p99", limit=10, beyond=CONTROL),
            beside={CONTROL: samples[CONTROL]},
            notes=paused.text(),
        )
    ]


def measure(stage: Stage) -> Iterable[Row]:
    return anyio.run(_measure, stage)


FIGURE = Figure(name="subscribers", title="A thousand subscribers", measure=measure)
