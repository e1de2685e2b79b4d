"""Small programs beside the bench, each in an interpreter of its own, and ended by who began it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PARTS = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Death:
    """As the watcher saw it, on ``CLOCK_MONOTONIC``."""

    killed_ns: int
    seen_ns: int


class Observer:
    """Has processes killed and their deaths seen by ``watcher.py``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        assert process.stdout
        self._orders, self._reports = process.stdin, process.stdout

    def order(self, pid: int) -> None:
        """Let it be killed. Returns at once; ``report`` has the rest."""
        self._orders.write(f"{pid}\n")
        self._orders.flush()

    def report(self) -> Death:
        """On the oldest order that was not reported on yet."""
        line = self._reports.readline()
        if not line:
            raise RuntimeError("the watcher ended; was there no such process to kill?")
        _, killed, seen = line.split()
        return Death(int(killed), int(seen))

    def kill(self, pid: int) -> Death:
        self.order(pid)
        return self.report()


@contextmanager
def observer() -> Iterator[Observer]:
    with beside("watcher.py") as process:
        yield Observer(process)


@contextmanager
def beside(
    script: str, *arguments: str, python: str = sys.executable, bare: bool = True
) -> Iterator[subprocess.Popen[str]]:
    """Run a script of this folder for the length of a ``with``; text in and out by pipes."""
    flags = ["-I", "-S"] if bare else ["-I"]
    process = subprocess.Popen(
        [python, *flags, str(PARTS / script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
