"""A bus, a journal, and somebody who hears what it delivers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from supervisor.bus import Bus, Published
from supervisor.contracts.event import DeviceFound
from supervisor.journal import Journal, Tail, prepare

BOOT, OTHER_BOOT = "boot-a", "boot-b"


class Collector:
    """Stands where the bus's ``deliver`` is, on the writer's thread."""

    def __init__(self) -> None:
        self.events: list[Published] = []
        self.more = threading.Condition()

    def __call__(self, events: tuple[Published, ...]) -> None:
        with self.more:
            self.events.extend(events)
            self.more.notify_all()

    def wait_for(self, count: int) -> None:
        with self.more:
            assert self.more.wait_for(lambda: len(self.events) >= count, timeout=10)


@contextmanager
def opened(path: Path, tail: Tail, **options: Any) -> Iterator[tuple[Bus, Journal, Collector]]:
    bus = Bus(epoch=tail.epoch, last_seq=tail.last_seq, now=lambda: "2026-01-02T03:04:05.000Z")
    collector = Collector()
    writer = Journal(path, collector, tail.promise, **options)
    bus.attach(writer.record)
    try:
        yield bus, writer, collector
    finally:
        writer.close()


def start(folder: Path, boot: str = BOOT, path: Path | None = None) -> Tail:
    return prepare(path or folder / "events.jsonl", folder / "journal.json", boot)


def lines(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def publish(bus: Bus, count: int) -> None:
    for number in range(count):
        bus.publish(DeviceFound(device=f"d{number}"))
