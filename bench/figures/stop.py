"""How long the end of a tree takes once nothing is asked any more, and what it leaves.

The tree is an engine with a grandchild that left the session, lost its parent and does not hear
TERM. With a grace of 0 the escalation is the first thing that a stop does, so the whole call
counts; with a short grace the time beyond it does, by which only the deaf one is left. Their deaths
are read from their pidfds; up to the reply the daemon makes sure that nobody else is left, and
writes that down. Beside it: the same two killed by somebody who knows them, and such a tree ended
by writing to ``cgroup.kill``. Other engines run meanwhile, for members are looked for among all
processes.
"""

import os
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import Daemon, daemon, launch_params, pid_of
from bench.parts.engine import EngineProgram
from bench.parts.supervisord import supervisord
from bench.parts.wire import wire
from bench.stage import Stage
from bench.turns import in_turns
from supervisor.daemon.cgroup import own_cgroup_root

GRACE_MS = 100
CGROUPS, NONE = "with cgroups", "without cgroups"
DEAD, KILLS, CGROUP_KILL, PEER = "last one dead", "kill by pid", "cgroup.kill", "supervisord"
BOUND = Bound(stat="p50", limit=50)
PATIENCE_S = 5.0
SETTLE_S = 0.02
"""The kernel tells of a cgroup's change no sooner than 10 ms after an earlier one."""


def tree_flags(told: Path) -> tuple[str, ...]:
    return "--stub-children", "detached+deaf", "--stub-children-file", str(told)


def grandchild(told: Path) -> int:
    """Its pid, once it is what it is to be."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            if (text := told.read_text()).endswith("\n"):
                return int(text)
        time.sleep(0.001)
    raise RuntimeError("the grandchild was not born")


@contextmanager
def pidfds(*pids: int) -> Iterator[list[int]]:
    with ExitStack() as closing:
        found = []
        for pid in pids:
            found.append(os.pidfd_open(pid))
            closing.callback(os.close, found[-1])
        yield found


def living(fds: list[int]) -> int:
    return len(fds) - len(select.select(fds, [], [], 0)[0])


class Trees:
    """Makes trees and ends them, in all the ways that are compared."""

    def __init__(self, stage: Stage) -> None:
        self._folder = stage.sub("told")
        self._engine = stage.engine
        self._numbers = count()
        self.left = 0
        """Processes that were still alive when the reply came."""
        self.dead: dict[tuple[str, int], list[float]] = {}
        """Milliseconds from an escalation to the last death, by daemon and grace."""

    def by(self, own: Daemon, grace_ms: int) -> float:
        """Milliseconds from the escalation to the reply."""
        name = f"t{next(self._numbers)}"
        told = self._folder / name
        flags = (*self._engine.flags(), *tree_flags(told))
        with own.client() as client, wire(own.socket) as line:
            view = client.launch(launch_params(self._engine, name, flags, wait=True))
            params = {"name": name, "graceMs": grace_ms}
            request = {"jsonrpc": "2.0", "id": 1, "method": "instance.stop", "params": params}
            with pidfds(pid_of(view), grandchild(told)) as fds:
                began = time.perf_counter_ns()
                line.send(msgspec.json.encode(request) + b"\n")
                dead = _readable([*fds, line.fileno()])
                line.answer()
                self.left += sum(at > dead[-1] for at in dead)
        *deaths, replied = ((at - began) / 1e6 - grace_ms for at in dead)
        self.dead.setdefault((own.folder.name, grace_ms), []).append(max(deaths))
        return replied

    def by_pid(self) -> float:
        with self._bare() as (process, fds):
            began = time.perf_counter_ns()
            for fd in fds:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            _readable(fds)
            taken = (time.perf_counter_ns() - began) / 1e6
            process.wait()
        return taken

    def by_cgroup(self, root: Path) -> float:
        cgroup = root / f"t{next(self._numbers)}"
        cgroup.mkdir()
        try:
            with self._bare(cgroup) as (process, _):
                events = os.open(cgroup / "cgroup.events", os.O_RDONLY)
                poll = select.poll()
                poll.register(events, select.POLLPRI)
                time.sleep(SETTLE_S)
                began = time.perf_counter_ns()
                (cgroup / "cgroup.kill").write_text("1")
                while b"populated 0" not in os.pread(events, 256, 0):
                    poll.poll(1_000)
                taken = (time.perf_counter_ns() - began) / 1e6
                os.close(events)
                process.wait()
        finally:
            cgroup.rmdir()
        return taken

    @contextmanager
    def _bare(
        self, cgroup: Path | None = None
    ) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
        """A tree of nobody's but ours; in a cgroup from before its engine's first instruction."""
        told = self._folder / f"b{next(self._numbers)}"
        command = [self._engine.path, *self._engine.flags(), *tree_flags(told)]
        if cgroup is not None:
            enter = f'echo $$ > {cgroup}/cgroup.procs; exec "$@"'
            command = ["/bin/sh", "-c", enter, "sh", *command]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        with pidfds(process.pid, grandchild(told)) as fds:
            yield process, fds


def _readable(fds: list[int]) -> list[int]:
    """When each of them became so; much later, where one never does."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    at: dict[int, int] = {}
    while len(at) < len(fds) and (found := poll.poll(PATIENCE_S * 1_000)):
        for fd, _ in found:
            at[fd] = time.perf_counter_ns()
            poll.unregister(fd)
    return [at.get(fd, time.perf_counter_ns()) for fd in fds]


@contextmanager
def own_cgroup() -> Iterator[Path | None]:
    root = own_cgroup_root(f"bench{uuid.uuid4().hex[:12]}")
    try:
        yield root
    finally:
        if root is not None:
            root.rmdir()


def left_by_supervisord(stage: Stage, engine: EngineProgram, trees: int) -> float | None:
    """Processes that live on after it stopped so many trees, told to kill the whole group."""
    folder = stage.sub("peer-told")
    with supervisord(
        stage.peers,
        stage.sub(PEER),
        engine,
        trees,
        flags=lambda number: tree_flags(folder / f"p{number}"),
        options="stopsignal=KILL\nkillasgroup=true\nstopasgroup=true\n",
    ) as peer:
        if peer is None:
            return None
        left = 0
        for name, pid in peer.pids().items():
            with pidfds(pid, grandchild(folder / name)) as fds:
                peer.calls.stopProcess(name)
                left += living(fds)
        return left


def measure(stage: Stage) -> Iterable[Row]:
    others = stage.pick(tiny=0, quick=10, default=50, full=200)
    rounds = stage.pick(tiny=2, quick=4, default=25, full=60)
    trees = Trees(stage)
    root = stage.closing.enter_context(own_cgroup())
    owns = {
        CGROUPS: stage.closing.enter_context(daemon(stage.sub("with"), stage.engine)),
        NONE: stage.closing.enter_context(
            daemon(stage.sub("without"), stage.engine, cgroups="off")
        ),
    }
    if root is None:
        del owns[CGROUPS]
    sides: dict[str, Callable[[], float]] = {KILLS: trees.by_pid}
    if root is not None:
        place = root
        sides[CGROUP_KILL] = lambda: trees.by_cgroup(place)
    for own in owns.values():
        own.fill(others)
    for kind, own in owns.items():
        for grace in (0, GRACE_MS):
            sides[f"{kind} {grace}"] = _stopping(trees, own, grace)
    samples = in_turns(sides, rounds)
    controls = {name: samples[name] for name in (KILLS, CGROUP_KILL) if name in samples}
    notes = [] if root else ["no cgroup v2 is ours to make here"]
    for kind, own in owns.items():
        for grace, words in ((0, "grace 0"), (GRACE_MS, f"beyond {GRACE_MS} ms of grace")):
            yield row(
                f"stop of a deaf, detached grandchild's tree, {words}, {kind}",
                "ms",
                samples[f"{kind} {grace}"],
                BOUND,
                beside={DEAD: trees.dead[own.folder.name, grace][1:]} | controls,
                notes=notes,
            )
    stops = len(owns) * 2 * (rounds + 1)
    theirs = 3
    left = left_by_supervisord(stage, stage.engine, theirs) if stage.scale != "tiny" else None
    yield row(
        f"processes left by the stop of {stops} such trees",
        "",
        [trees.left],
        Bound(stat="most", limit=0),
        beside={f"{PEER}, of {theirs} trees": None if left is None else [left]},
    )


def _stopping(trees: Trees, own: Daemon, grace_ms: int) -> Callable[[], float]:
    return lambda: trees.by(own, grace_ms)


FIGURE = Figure(name="stop", title="Stop of a stubborn tree", measure=measure)
