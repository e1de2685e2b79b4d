"""How many events a second go through the bus, the journal's thread and one subscriber.

All of it on one interpreter, as in the daemon: the publisher gives up its turn every few hundred
events, and the time ends when the subscriber has the last one. Without a journal it shows what the
writing costs; one ``write`` a line is what shippers need.
"""

import time
from collections.abc import Iterable
from pathlib import Path

import anyio
import anyio.lowlevel

from bench.figure import Bound, Figure, Row, row
from bench.parts.inside import journal_of
from bench.stage import Stage
from supervisor.bus import Bus, Subscription
from supervisor.clock import SystemClock, rfc3339
from supervisor.contracts.event import Phase
from supervisor.journal import prepare

CONTROL = "no journal"
CHUNK = 256


async def rate(bus: Bus, events: int) -> float:
    """Events a second, from the first ``publish`` to the last one received."""
    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, bus.subscribe(), events)
        await anyio.lowlevel.checkpoint()
        for number in range(events):
            bus.publish(Phase(instance="bench", nonce="0" * 32, phase="loading"))
            if number % CHUNK == CHUNK - 1:
                await anyio.lowlevel.checkpoint()
    return events / (time.perf_counter() - began)


async def _receive(place: Subscription, events: int) -> None:
    left = events
    while left:
        left -= len(await place.next())


def _check(path: Path, events: int) -> None:
    """A rate of events that were not all written would be no rate."""
    with path.open("rb") as lines:
        written = sum(1 for _ in lines)
    if written != events:
        raise RuntimeError(f"{written} of {events} events were written")


async def _measure(stage: Stage) -> list[Row]:
    events = stage.pick(tiny=500, quick=10_000, default=14_000)
    rounds = stage.pick(tiny=1, quick=5, default=11, full=31)
    clock = SystemClock()
    promise = prepare(stage.folder / "none.jsonl", stage.folder / "journal.json", "bench").promise
    rates: dict[str, list[float]] = {"ours": [], CONTROL: []}
    for turn in range(rounds + 1):
        for kind, kept in rates.items():
            bus = Bus(epoch="bench", last_seq=0, now=lambda: rfc3339(clock.wall()))
            journal, path = None, stage.folder / f"events-{turn}.jsonl"
            if kind == "ours":
                journal = journal_of(bus, path, promise)
            measured = await rate(bus, events)
            if journal is not None:
                journal.close()
                _check(path, events)
            if turn:
                kept.append(measured)
    return [
        row(
            "events through bus, journal and one subscriber",
            "/s",
            rates["ours"],
            Bound(stat="p50", limit=20_000, at_least=True),
            beside={CONTROL: rates[CONTROL]},
        )
    ]


def measure(stage: Stage) -> Iterable[Row]:
    return anyio.run(_measure, stage)


FIGURE = Figure(name="events", title="Events a second", measure=measure)
