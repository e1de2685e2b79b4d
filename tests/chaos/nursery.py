"""Daemons by fork from a process that has everything imported: a start costs milliseconds.

A daemon so made is the one that ``engined`` would be a third of a second later. The nursery is a
process of its own, so that whoever tests may have threads; it reaps no daemon before it is told to,
so that no pid in a test's hands can come to mean another process.
"""

import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import anyio
import msgspec

from tests.chaos.daemon import Orders, serve

ROOT = Path(__file__).parents[2]


class Request(msgspec.Struct, frozen=True):
    """Either a birth or a burial."""

    start: Orders | None = None
    reap: int | None = None


@dataclass(slots=True)
class Daemon:
    """A living daemon, or a dead one that nobody has reaped."""

    pid: int
    nursery: "Nursery"
    ended: int | None = None

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        if self.ended is None:
            self.ended = self.nursery.reap(self.pid)
        return self.ended

    def is_dead(self) -> bool:
        stat = Path(f"/proc/{self.pid}/stat").read_text() if self.ended is None else ") Z"
        return stat.rpartition(") ")[2][0] in "ZX"


class Nursery:
    """The test's side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        self._turn = threading.Lock()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()
        self._process.wait()

    def start(self, orders: Orders) -> Daemon:
        return Daemon(self._ask(Request(start=orders)), self)

    def reap(self, pid: int) -> int:
        return self._ask(Request(reap=pid))

    def _ask(self, request: Request) -> int:
        tell, hear = self._process.stdin, self._process.stdout
        assert tell
        assert hear
        with self._turn:
            tell.write(msgspec.json.encode(request) + b"\n")
            tell.flush()
            return int(hear.readline())


def main(requests: BinaryIO, replies: BinaryIO) -> None:
    """Until nobody asks any more. What was born here outlives it, unless it is killed first."""
    anyio.run(anyio.sleep, 0)  # for all that is imported by the first loop alone
    gc.freeze()  # and left where it is by the collections of those who are born
    alive: set[int] = set()
    for line in requests:
        request = msgspec.json.decode(line, type=Request)
        if request.start is not None:
            answer = _bear(request.start)
            alive.add(answer)
        else:
            assert request.reap is not None
            _, status = os.waitpid(request.reap, 0)
            alive.discard(request.reap)
            answer = os.waitstatus_to_exitcode(status)
        replies.write(b"%d\n" % answer)
        replies.flush()
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _bear(orders: Orders) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        null = os.open("/dev/null", os.O_RDWR)
        stderr = os.open(orders.stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor, stream in ((null, 0), (null, 1), (stderr, 2)):
            os.dup2(descriptor, stream)
        os.close(null)
        os.close(stderr)
        serve(orders)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
