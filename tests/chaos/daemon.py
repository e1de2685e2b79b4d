"""The daemon with fault points: the real composition, told to die at one of its named steps."""

import os
import signal
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import msgspec

from supervisor.contracts.config import parse_config
from supervisor.contracts.paths import resolve_paths
from supervisor.daemon.activation import Activation
from supervisor.daemon.logs import configure_logging
from supervisor.daemon.run import run
from supervisor.instances.state_dir import lock_state_dir


class Orders(msgspec.Struct, frozen=True):
    """What a test wants of one life."""

    config: str
    stderr: str
    trace: str | None = None
    """A file that gets the name of each step, before it is taken."""
    die_at: int | None = None
    """The number, from 1, of the step at which this life ends."""
    passing: frozenset[str] = frozenset()
    """Steps that do not count."""


@dataclass(slots=True)
class FaultPoints:
    """Counts the steps of lifecycle and of the record store, and ends the process at one."""

    trace: int | None
    die_at: int | None
    passing: frozenset[str]
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def at(self, step: str) -> None:
        if step in self.passing:
            return
        with self._lock:
            self._count += 1
            if self.trace is not None:
                os.write(self.trace, f"{step}\n".encode())
            if self._count == self.die_at:
                os.kill(os.getpid(), signal.SIGKILL)
                signal.pause()  # the other threads get no further step either

    def store(self, step: str) -> None:
        self.at(f"store:{step}")


def serve(orders: Orders) -> None:
    """As ``supervisor.daemon.main``, with the seams in use."""
    config = parse_config(Path(orders.config).read_text(encoding="utf-8"))
    paths = resolve_paths({}, config)
    for folder in (paths.state_dir, paths.log_dir):
        os.makedirs(folder, exist_ok=True)
    configure_logging(config.log_level)
    trace = None
    if orders.trace is not None:
        trace = os.open(orders.trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    points = FaultPoints(trace, orders.die_at, orders.passing)
    with lock_state_dir(Path(paths.state_dir)):
        serving = partial(run, config, paths, Activation(), at=points.at, step=points.store)
        anyio.run(serving, backend="asyncio")
