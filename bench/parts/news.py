"""Where a peer's listener tells of deaths: datagrams of a name and the moment it heard of it.

They are taken as they come: the kernel keeps ten of them, and a listener that has to wait to tell
of one death notes the moment of the next too late.
"""

import socket
import threading
from pathlib import Path


class News:
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._heard: dict[str, int] = {}
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._take, name="news", daemon=True)
        self._thread.start()

    def heard(self, name: str, within_s: float) -> int | None:
        """When the listener first heard of this one's death, or ``None`` if it does not in time."""
        with self._more:
            self._more.wait_for(lambda: name in self._heard, within_s)
            return self._heard.get(name)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _take(self) -> None:
        while told := self._socket.recv(256):
            name, at = told.decode().split()
            with self._more:
                self._heard.setdefault(name, int(at))
                self._more.notify_all()
