"""How long after an engine became ready its ``ready`` event is at a subscriber.

The engine loads for 2 s and tells when its ``main`` began, so the moment at which it starts to
answer 200 is known exactly and by itself. Beside it runs what most peers do: ask every 100 ms.
Few load at a time and some way apart, for an engine that loads is probed every few milliseconds,
and ten of them would make a small machine busy. The pollers begin at random phases.
"""

import http.client
import random
import threading
import time
from collections.abc import Iterable

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import Daemon, daemon, launch_params
from bench.parts.engine import Announcements, announcements
from bench.parts.subscriber import Subscriber, subscriber
from bench.stage import Stage
from supervisor.client import Client
from supervisor.contracts.rpc import StopParams

LOAD_S = 2.0
APART_S = 0.2
TOGETHER = 4
POLL_S = 0.1
PEER = "poll at 100 ms"


class Poller(threading.Thread):
    """Asks one engine as peers do, and notes when it was first told 200."""

    def __init__(self, port: int) -> None:
        super().__init__(name=f"poll-{port}", daemon=True)
        self._port = port
        self.at_ns: int | None = None

    def run(self) -> None:
        time.sleep(random.uniform(0, POLL_S))
        ends = time.monotonic() + 3 * LOAD_S
        while self.at_ns is None and time.monotonic() < ends:
            link = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1)
            try:
                link.request("GET", "/health")
                if link.getresponse().status == 200:
                    self.at_ns = time.monotonic_ns()
            except OSError:
                pass
            finally:
                link.close()
            time.sleep(POLL_S)


def batch(
    own: Daemon, client: Client, told: Announcements, events: Subscriber, names: list[str]
) -> list[tuple[float, float | None]]:
    """Lag of ours and of the poller, in milliseconds, for each of the engines."""
    flips: dict[str, float] = {}
    pollers: dict[str, Poller] = {}
    for name in names:
        params = launch_params(own.engine, name, own.engine.flags(told, LOAD_S), wait=False)
        port = client.launch(params).record.port
        flips[name] = told.next().at_ns + LOAD_S * 1e9
        pollers[name] = Poller(port)
        pollers[name].start()
        time.sleep(APART_S)
    lags: list[tuple[float, float | None]] = []
    for name in names:
        ours = (events.arrival("ready", name) - flips[name]) / 1e6
        pollers[name].join()
        theirs = pollers[name].at_ns
        lags.append((ours, None if theirs is None else (theirs - flips[name]) / 1e6))
    for name in names:
        client.stop(StopParams(name=name, grace_ms=1_000))
    return lags


def measure(stage: Stage) -> Iterable[Row]:
    told = stage.closing.enter_context(announcements(stage.folder / "told"))
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine))
    client = stage.closing.enter_context(own.client())
    events = stage.closing.enter_context(subscriber(own.socket, "ready"))
    batches = stage.pick(tiny=1, quick=2, default=10, full=40)
    size = stage.pick(tiny=1, quick=TOGETHER, default=TOGETHER)
    lags = [
        lag
        for turn in range(batches)
        for lag in batch(own, client, told, events, [f"e{turn}-{one}" for one in range(size)])
    ]
    yield row(
        "engine answers 200, until `ready` at a subscriber (2 s load)",
        "ms",
        [ours for ours, _ in lags],
        Bound(stat="p50", limit=10),
        Bound(stat="p95", limit=30),
        beside={PEER: [theirs for _, theirs in lags if theirs is not None]},
    )


FIGURE = Figure(name="ready", title="Ready lag", measure=measure)
