"""The figures of the chaos, each defined here, and found without the daemon's help.

**double lease**: an engine that started on a device and found its lock held by another living tree,
or two records on one disk that name the same device.

**lost engine**: a main process that ended although nobody had ended it (it did not exit by itself,
was not killed by us, and its launch was neither stopped nor restarted); or one that lives at a
moment of rest and has no record with its launch, pid and start; or a record that names an engine
which, at a moment of rest, is not there.

**leaked process**: a process of an engine's tree, main or not, that lives at a moment of rest while
no record names its launch; at the end, when everything was stopped, any that lives at all.

**relaunched engine**: a start of an engine beyond the first of its launch without a reason: a
restart that was ordered, or an end of an earlier one that was its own or ours.

**corrupt record**: at the death of a daemon, a file among the records that is not one, or a
tombstone that is none; after the next one's start, a file in quarantine or a temporary file.

**journal**: a number missing or given twice, or an attempt that broke the rule of ``journal``.

A moment of rest is one at which no order is open, and each of these must hold within a time that
lets grace and back-off end.
"""

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from supervisor.contracts.instance import InstanceRecord, ProcessHandle
from tests.chaos import journal
from tests.chaos.book import Book, Entry, bearers, lives
from tests.chaos.traffic import Orders
from tests.chaos.world import World

FIGURES = (
    "double lease",
    "lost engine",
    "leaked process",
    "relaunched engine",
    "corrupt record",
    "journal",
)
REST_S = 10.0
"""How long a moment of rest may take to come."""


class Audit:
    """Collects what was found, once each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.book = Book(world.book.path)  # of its own: the clients read theirs in their threads
        self._found: dict[str, set[str]] = {figure: set() for figure in FIGURES}
        self._left: set[tuple[str, int, int] | None] = set()

    @property
    def counts(self) -> dict[str, int]:
        return {figure: len(found) for figure, found in self._found.items()}

    @property
    def findings(self) -> list[str]:
        return [f"{figure}: {it}" for figure, found in self._found.items() for it in sorted(found)]

    def of_the_dead(self) -> None:
        """Between two daemons: the disk as one left it."""
        held: dict[str, str] = {}
        self._left = {_identity(path) for path in self._world.temporary()}
        try:
            records = self._world.records()
            self._world.tombstones()
        except (msgspec.MsgspecError, AssertionError, OSError) as error:
            self._add("corrupt record", repr(error))
            return
        for record in records.values():
            for device in record.devices:
                if device in held:
                    both = f"{device} of {held[device]} and {record.name}"
                    self._add("double lease", f"{both} ({record.nonce[:8]})")
                held[device] = record.name

    def of_the_living(self) -> None:
        """A new daemon serves."""
        for path in self._world.quarantined():
            self._add("corrupt record", f"{path} is in quarantine")
        for path in self._world.temporary():
            if (left := _identity(path)) and left in self._left:
                self._add("corrupt record", f"{path} is left of an earlier daemon")

    def at_rest(self) -> None:
        """No order is open: each difference between records and engines goes away soon."""
        deadline = time.monotonic() + REST_S
        wrong = set(self._differences())
        while wrong and time.monotonic() < deadline:
            time.sleep(0.02)
            wrong &= set(self._differences())
        for figure, detail in wrong:
            self._add(figure, detail)

    def _differences(self) -> Iterable[tuple[str, str]]:
        records = self._world.records()
        by_nonce = {record.nonce: record for record in records.values()}
        handles = {_handle(record) for record in records.values()} - {None}
        for entry in self.book.living():
            if entry.nonce not in by_nonce:
                figure = "lost engine" if entry.what == "start" else "leaked process"
                yield figure, f"{_name(entry)} has no record"
            elif entry.what == "start" and entry.key not in handles:
                yield "lost engine", f"{_name(entry)} is not the one in its record"
        for record in records.values():
            handle = _handle(record)
            if handle is not None and not lives(*handle):
                yield "lost engine", f"{record.name} {record.nonce[:8]} {handle} is not there"

    def of_the_orders(self, orders: Orders) -> None:
        """Ends and starts of engines against what was asked. At a moment of rest."""
        entries = self.book.read()
        for entry in entries:
            if entry.what == "clash":
                self._add("double lease", f"{_name(entry)} on {entry.device} at {entry.at}")
        left = {entry.key for entry in entries if entry.what == "exit"}
        starts: dict[str, list[Entry]] = {}
        for entry in entries:
            if entry.what == "start":
                starts.setdefault(entry.nonce, []).append(entry)
        for nonce, mains in starts.items():
            ended = [main for main in mains if not main.lives]
            ours = [main for main in ended if main.key in left or main.key in orders.killed]
            others = len(ended) - len(ours)
            asked = orders.restarts[nonce] + (orders.stops[nonce] > 0)
            if others > asked:
                unasked = next(main for main in ended if main not in ours)
                self._add("lost engine", f"{_name(unasked)} was ended and nobody asked for it")
            if len(mains) - 1 > len(ours) + orders.restarts[nonce]:
                self._add("relaunched engine", f"{_name(mains[-1])}, start {len(mains)}")

    def of_the_journal(self) -> None:
        """At a moment of rest."""
        told = journal.lines(self._world.log_dir / "events.jsonl")
        living = {record.nonce for record in self._world.records().values()}
        for finding in [*journal.gaps(told), *journal.misreported(told, living)]:
            self._add("journal", finding)

    def at_the_end(self) -> None:
        """Everything was stopped."""
        nonces = {entry.nonce for entry in self.book.read()}
        deadline = time.monotonic() + REST_S
        while bearers(nonces) and time.monotonic() < deadline:
            time.sleep(0.05)
        for entry in self.book.living():
            self._add("leaked process", f"{_name(entry)} at the end")
        for pid in set(bearers(nonces)) - {entry.pid for entry in self.book.living()}:
            self._add("leaked process", f"{pid}, which is not in the book, at the end")
        for name in self._world.records():
            self._add("lost engine", f"{name} has a record at the end")

    def summary(self) -> Counter[str]:
        return Counter(entry.what for entry in self.book.read())

    def _add(self, figure: str, detail: str) -> None:
        self._found[figure].add(detail)


def _handle(record: InstanceRecord) -> tuple[int, int] | None:
    if not isinstance(record.ref, ProcessHandle):
        return None
    return record.ref.pid, int((record.ref.start_token or ":0").rpartition(":")[2])


def _identity(path: Path) -> tuple[str, int, int] | None:
    """Numbers of files come round as pids do; so the time of the last write belongs to it."""
    with suppress(FileNotFoundError):  # a living daemon has just renamed it
        seen = path.stat()
        return str(path), seen.st_ino, seen.st_mtime_ns
    return None


def _name(entry: Entry) -> str:
    return f"{entry.name} {entry.nonce[:8]} ({entry.what} {entry.pid})"
