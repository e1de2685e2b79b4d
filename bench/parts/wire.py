"""A connection that asks and waits, with no client library between the clock and the kernel."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Wire:
    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(10)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise

    def ask(self, line: bytes) -> bytes:
        """Send one line, and return the one that comes back."""
        self.send(line)
        return self.answer()

    def send(self, lines: bytes) -> None:
        self._socket.sendall(lines)

    def answer(self) -> bytes:
        """What has come, up to the end of a line; of many requests it may be several answers."""
        answer = self._socket.recv(1 << 20)
        while not answer.endswith(b"\n"):
            part = self._socket.recv(1 << 20)
            if not part:
                raise ConnectionError("hung up in the middle of an answer")
            answer += part
        return answer

    def timed(self, line: bytes) -> float:
        """Milliseconds from the first byte sent to the last one received."""
        began = time.perf_counter_ns()
        self.ask(line)
        return (time.perf_counter_ns() - began) / 1e6

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


@contextmanager
def wire(path: str) -> Iterator[Wire]:
    one = Wire(path)
    try:
        yield one
    finally:
        one.close()
