"""Where a peer's listener tells of deaths: datagrams of a name and the moment it heard of it."""

import select
import socket
import time
from pathlib import Path


class News:
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)
        self._heard: dict[str, int] = {}

    def heard(self, name: str, within_s: float) -> int | None:
        """When the listener first heard of this one's death, or ``None`` if it does not in time."""
        deadline = time.monotonic() + within_s
        while True:
            self._take()
            if name in self._heard:
                return self._heard[name]
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            select.select([self._socket], [], [], left)

    def close(self) -> None:
        self._socket.close()

    def _take(self) -> None:
        try:
            while True:
                name, at = self._socket.recv(256).decode().split()
                self._heard.setdefault(name, int(at))
        except BlockingIOError:
            return
