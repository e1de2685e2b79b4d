"""The engines' program, and the socket on which engines tell when their ``main`` began.

A compiled one where there is a C compiler: an interpreter's own start would bury what is measured.
Otherwise the stub engine of the tests, which takes the same flags and starts some 20 ms later, on
both sides of every comparison.
"""

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.parts.stub import stub_binary

SOURCE = Path(__file__).with_name("engine.c")
LIFE_S = 900
"""No engine outlives this, whatever becomes of the bench."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProgram:
    """An executable, and what kind of one."""

    path: str
    compiled: bool
    model: str
    """A file to name as the model; it is empty, and nobody reads it."""

    def flags(
        self, told: "Announcements | None" = None, load_s: float = 0, *extra: str
    ) -> tuple[str, ...]:
        """Extra arguments of a launch."""
        flags = ["--stub-life", str(LIFE_S), *extra]
        if told is not None:
            flags += ["--stub-announce", told.path]
        if load_s:
            flags += ["--stub-load", f"{load_s:g}"]
        return tuple(flags)


def build_engine(folder: Path) -> EngineProgram:
    model = folder / "model.gguf"
    model.touch()
    target = folder / "llama-server"
    compiler = shutil.which("cc") or shutil.which("gcc")
    compiled = compiler is not None and _compile(compiler, target)
    path = str(target) if compiled else stub_binary(folder)
    return EngineProgram(path=path, compiled=compiled, model=str(model))


def _compile(compiler: str, target: Path) -> bool:
    """Static where the C library can be had so: that is nearest to no start-up of its own."""
    for static in (["-static"], []):
        command = [compiler, "-O2", "-w", *static, "-o", str(target), str(SOURCE)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Began:
    """One engine's announcement."""

    pid: int
    at_ns: int


class Announcements:
    """The receiving end. What is sent before it is read waits in the kernel."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(10)

    def next(self) -> Began:
        """The next announcement. Raises ``TimeoutError`` when none comes."""
        pid, at_ns = self._socket.recv(64).split()
        return Began(int(pid), int(at_ns))

    def crowd(self, count: int) -> "Crowd":
        """Of so many that begin at the same time: the kernel lets no more than ten of them wait."""
        one = Crowd(self, count)
        one.start()
        return one

    def close(self) -> None:
        self._socket.close()
        Path(self.path).unlink(missing_ok=True)


class Crowd(threading.Thread):
    """Takes the announcements as they come."""

    def __init__(self, told: Announcements, count: int) -> None:
        super().__init__(name="crowd", daemon=True)
        self._told, self._count = told, count
        self._began: list[Began] = []

    def run(self) -> None:
        with suppress(TimeoutError):
            while len(self._began) < self._count:
                self._began.append(self._told.next())

    def all(self) -> list[Began]:
        """Once everybody began. Raises ``RuntimeError`` where somebody never does."""
        self.join()
        if len(self._began) < self._count:
            raise RuntimeError(f"{len(self._began)} of {self._count} began")
        return self._began


@contextmanager
def announcements(path: Path) -> Iterator[Announcements]:
    told = Announcements(path)
    try:
        yield told
    finally:
        told.close()
