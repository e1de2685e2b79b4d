"""Where a figure plays: a scratch folder, how much it may take, and an orderly end.

Everything that is started lives below the scratch folder, the engines' program included. So what
is ours can be told at the end by its path, and a bench that failed half way leaves nothing behind.
"""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.parts.cgroups import remove_cgroups
from bench.parts.engine import EngineProgram, build_engine
from bench.parts.peers import Peers

Scale = Literal["tiny", "quick", "default", "full"]
"""``tiny`` proves that a figure works, and measures nothing worth reading."""

PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One figure's. What it enters into ``closing`` is taken down at its end, newest first."""

    scale: Scale
    folder: Path
    """Short, for Unix sockets are made in it."""
    engine: EngineProgram
    peers: Peers
    closing: ExitStack

    def pick(self, *, tiny: int, quick: int, default: int, full: int | None = None) -> int:
        """A number for this scale."""
        match self.scale:
            case "tiny":
                return tiny
            case "quick":
                return quick
            case "default":
                return default
            case "full":
                return default if full is None else full

    def sub(self, name: str) -> Path:
        """A folder below this stage's own."""
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path


@contextmanager
def set_stage(scale: Scale, engine: EngineProgram, peers: Peers, folder: Path) -> Iterator[Stage]:
    folder.mkdir()
    try:
        with ExitStack() as closing:
            yield Stage(scale=scale, folder=folder, engine=engine, peers=peers, closing=closing)
    finally:
        sweep(folder.parent)
        remove_cgroups(folder)


@contextmanager
def scratch() -> Iterator[tuple[Path, EngineProgram]]:
    """A folder for a whole run, with the engines' program in it."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        try:
            yield folder, build_engine(folder)
        finally:
            sweep(folder)


def sweep(folder: Path) -> int:
    """Kill what was started from ``folder`` and is still there; say how many that were.

    A process is one of them when its arguments name the folder, whose name is this run's alone.
    It is looked at through its pidfd, so that no successor of its pid is met.
    """
    killed = 0
    deadline = time.monotonic() + PATIENCE_S
    while (found := _started_from(folder)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(OSError):
                pidfd = os.pidfd_open(pid)
                try:
                    if _names(pid, folder):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                        killed += 1
                finally:
                    os.close(pidfd)
        time.sleep(0.02)
    return killed


def _started_from(folder: Path) -> list[int]:
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [pid for pid in pids if pid != os.getpid() and _names(pid, folder)]


def _names(pid: int, folder: Path) -> bool:
    with suppress(OSError):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        return os.fsencode(folder) + b"/" in arguments
    return False
