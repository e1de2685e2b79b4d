"""How long the start of many engines at once takes, each gated and recorded.

Ours counts from the first request, sent by four clients who each ask for their share in one go, to
the last ``spawned`` event at a subscriber: then every handle is on disk and every engine runs. The
sleepers never listen, as an engine that loads a large model; those that answer at once are ready in
passing. The control is what our gates alone must cost: as many bare interpreters, one after the
other and four at a time. Peers start the same program, by an order to all of them (supervisord, s6)
or from the start of their own daemon (circus, whose order to all skips those that wait), and count
to the last engine's ``main``; they record nothing.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench.figure import Bound, Figure, Row, row
from bench.parts.circus import circus
from bench.parts.daemon import Daemon, daemon, launch_params, pid_of
from bench.parts.engine import Announcements, announcements
from bench.parts.s6 import s6
from bench.parts.subscriber import subscriber
from bench.parts.supervisord import supervisord
from bench.parts.wire import Wire, wire
from bench.stage import Stage
from supervisor.contracts.rpc import DrainParams

CLIENTS = 4
"""A connection has no more than 64 requests in work."""
GATES = 4
SLEEPS = ("--stub-loading", "refuse", "--stub-load", "900")
ONE_BY_ONE, AT_A_TIME = "bare, one by one", f"bare, {GATES} at a time"
SUPERVISORD, CIRCUS, S6 = "supervisord", "circus (from its exec)", "s6"
PATIENCE_S = 60.0


def bare(count: int, at_a_time: int) -> float:
    """Milliseconds for so many interpreters that do nothing, from the first to the last one's end.

    The one below this venv, which is what our stubs run on.
    """
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    began = time.perf_counter_ns()
    running: list[subprocess.Popen[bytes]] = []
    for _ in range(count):
        if len(running) == at_a_time:
            running.pop(0).wait()
        running.append(subprocess.Popen([python, "-I", "-S", "-c", "pass"]))
    for process in running:
        process.wait()
    return (time.perf_counter_ns() - began) / 1e6


class Starts:
    """One daemon that starts all of them, again and again."""

    def __init__(self, stage: Stage, own: Daemon, told: Announcements, count: int) -> None:
        self._engine = stage.engine
        self._own, self._told, self._count = own, told, count
        self._turn = 0

    def ours(self, *flags: str) -> float:
        """Milliseconds. Raises ``RuntimeError`` where not everybody was started and recorded."""
        self._turn += 1
        names = [f"r{self._turn}-{number}" for number in range(self._count)]
        every = (*self._engine.flags(self._told), *flags)
        crowd = self._told.crowd(self._count)
        with ExitStack() as stack:
            events = stack.enter_context(subscriber(self._own.socket, "spawned"))
            lines = [stack.enter_context(wire(self._own.socket)) for _ in range(CLIENTS)]
            shares = [
                (line, b"".join(self._request(name, every) for name in names[number::CLIENTS]))
                for number, line in enumerate(lines)
            ]
            began = time.monotonic_ns()
            for line, requests in shares:
                line.send(requests)
            for number, line in enumerate(lines):
                _take(line, len(names[number::CLIENTS]))
            last = max(events.arrival("spawned", name, PATIENCE_S) for name in names)
        self._check({one.pid for one in crowd.all()}, set(names))
        return (last - began) / 1e6

    def _request(self, name: str, flags: tuple[str, ...]) -> bytes:
        params = launch_params(self._engine, name, flags, wait=False)
        request = {"jsonrpc": "2.0", "id": name, "method": "instance.launch", "params": params}
        return msgspec.json.encode(request) + b"\n"

    def _check(self, ran: set[int], names: set[str]) -> None:
        with self._own.client() as client:
            views = client.list().instances
            recorded = {path.stem for path in self._own.folder.glob("state/**/*.json")}
            if {pid_of(view) for view in views} != ran or not names <= recorded:
                raise RuntimeError("what runs is not what was recorded")
            client.drain(DrainParams(grace_ms=1_000))


def _take(line: Wire, answers: int) -> None:
    text = b""
    while text.count(b"\n") < answers:
        text += line.answer()
    if b'"error"' in text:
        raise RuntimeError(f"not everybody was launched: {text[-300:]!r}")


class PeerStarts:
    """The same work, each time by a daemon of theirs that has just been started."""

    def __init__(self, stage: Stage, told: Announcements, count: int) -> None:
        self._stage, self._told, self._count = stage, told, count
        self._flags = ("--stub-announce", told.path)
        self._turn = 0

    def supervisord(self) -> float | None:
        with supervisord(
            self._stage.peers,
            self._folder(),
            self._stage.engine,
            self._count,
            flags=lambda number: self._flags,
            autostart=False,
        ) as peer:
            return None if peer is None else self._ordered(peer.start_all)

    def s6(self) -> float | None:
        with s6(
            self._stage.peers,
            self._folder(),
            self._stage.engine,
            self._count,
            flags=self._flags,
            autostart=False,
        ) as peer:
            return None if peer is None else self._ordered(peer.start_all)

    def circus(self) -> float | None:
        if self._stage.peers.bin("circusd") is None:
            return None
        crowd = self._told.crowd(self._count)
        with circus(
            self._stage.peers, self._folder(), self._stage.engine, self._count, flags=self._flags
        ) as peer:
            assert peer is not None
            return (max(one.at_ns for one in crowd.all()) - peer.began_ns) / 1e6

    def _ordered(self, order: Callable[[], None]) -> float:
        time.sleep(0.3)
        crowd = self._told.crowd(self._count)
        began = time.monotonic_ns()
        order()
        return (max(one.at_ns for one in crowd.all()) - began) / 1e6

    def _folder(self) -> Path:
        self._turn += 1
        return self._stage.sub(f"p{self._turn}")


def measure(stage: Stage) -> Iterable[Row]:
    count = stage.pick(tiny=4, quick=30, default=200)
    rounds = stage.pick(tiny=1, quick=1, default=3, full=5)
    peer_rounds = stage.pick(tiny=0, quick=1, default=2, full=3)
    told = stage.closing.enter_context(announcements(stage.folder / "told"))
    theirs = stage.closing.enter_context(announcements(stage.folder / "theirs"))
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine))
    starts, peers = Starts(stage, own, told, count), PeerStarts(stage, theirs, count)
    starts.ours()  # warms up: modules that are loaded late, the first cgroup
    sleeping: list[float] = []
    answering: list[float] = []
    beside: dict[str, list[float]] = {ONE_BY_ONE: [], AT_A_TIME: []}
    for turn in range(rounds):
        sleeping.append(starts.ours(*SLEEPS))
        answering.append(starts.ours())
        beside[ONE_BY_ONE].append(bare(count, 1))
        beside[AT_A_TIME].append(bare(count, GATES))
        if turn < peer_rounds:
            for name, side in (
                (SUPERVISORD, peers.supervisord),
                (CIRCUS, peers.circus),
                (S6, peers.s6),
            ):
                if (taken := side()) is not None:
                    beside.setdefault(name, []).append(taken)
    bound = Bound(stat="p50", limit=0, beyond=ONE_BY_ONE, times=2)
    for kind, samples in (("sleepers", sleeping), ("engines that answer", answering)):
        yield row(f"start of {count} {kind}, recorded", "ms", samples, bound, beside=beside)


FIGURE = Figure(name="start", title="Many starts at once", measure=measure)
