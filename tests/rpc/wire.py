"""A client made of bytes: it sends what a test says, well-formed or not."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Wire:
    """One connection, with a timeout so that a missing answer fails a test."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self._file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, method: str, params: Any = None, ident: Any = 1) -> None:
        self.send(encoded(method, params, ident) + b"\n")

    def receive(self) -> Any:
        """The next message, or None at the end."""
        line = self._file.readline()
        if not line:
            return None
        assert line.endswith(b"\n")
        return json.loads(line)

    def ask(self, method: str, params: Any = None, ident: Any = 1) -> Any:
        self.request(method, params, ident)
        return self.receive()

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@contextmanager
def connected(path: str) -> Iterator[Wire]:
    wire = Wire(path)
    try:
        yield wire
    finally:
        wire.close()


def encoded(method: str, params: Any = None, ident: Any = 1) -> bytes:
    request = {"jsonrpc": "2.0", "method": method, "id": ident}
    if params is not None:
        request["params"] = params
    return json.dumps(request, ensure_ascii=False).encode()
