"""A client that notes when events reach it: when ``recv`` returned, before any parsing."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

PATIENCE_S = 15.0


class Subscriber:
    """Reads on a thread of its own from the moment it is made."""

    def __init__(self, path: str, *kinds: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        params = {"kinds": kinds} if kinds else {}
        request = {"jsonrpc": "2.0", "id": 1, "method": "event.subscribe", "params": params}
        self._socket.sendall(msgspec.json.encode(request) + b"\n")
        reply = self._socket.recv(65536)
        if b'"result"' not in reply:
            raise RuntimeError(f"no subscription: {reply!r}")
        self._arrived: dict[tuple[str, str], int] = {}
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="subscriber", daemon=True)
        self._thread.start()

    def arrival(self, kind: str, instance: str, within_s: float = PATIENCE_S) -> int:
        """When the first event of this kind and instance came. Raises ``TimeoutError``."""
        key = kind, instance
        with self._news:
            if not self._news.wait_for(lambda: key in self._arrived, within_s):
                raise TimeoutError(f"no {kind} event of {instance} within {within_s} s")
            return self._arrived[key]

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        pending = b""
        while part := self._socket.recv(65536):
            at = time.monotonic_ns()
            *lines, pending = (pending + part).split(b"\n")
            with self._news:
                for line in lines:
                    event: dict[str, Any] = msgspec.json.decode(line)["params"].get("event", {})
                    self._arrived.setdefault((event.get("kind", ""), event.get("instance", "")), at)
                self._news.notify_all()


@contextmanager
def subscriber(path: str, *kinds: str) -> Iterator[Subscriber]:
    one = Subscriber(path, *kinds)
    try:
        yield one
    finally:
        one.close()
