"""A server that is nobody's engine and says yes to everybody."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from supervisor.contracts.event import Event
from tests.lifecycle.house import Home

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + b'{"status":"ok"}'


class Squatter:
    """Listens from the moment it is made, in this process, and answers 200 on a thread."""

    def __init__(self, port: int, *, reuse_port: bool = False) -> None:
        self.hits = 0
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, suppress(OSError):
                client.settimeout(0.05)
                self.hits += 1
                client.sendall(OK)
                client.recv(65536)

    def answers(self, port: int) -> bool:
        """It still serves: nobody took its port or ended it."""
        with socket.create_connection(("127.0.0.1", port), 2) as client:
            return client.recv(65536).startswith(b"HTTP/1.1 200")

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def squatting(
    home: Home, kind: type[Event], which: Callable[[str], bool], *, reuse_port: bool = False
) -> Iterator[dict[str, list[tuple[int, Squatter]]]]:
    """Take the port of every launch that ``which`` picks, as its event of ``kind`` is told."""
    squatters: dict[str, list[tuple[int, Squatter]]] = {}

    def squat(event: Event) -> None:
        if isinstance(event, kind) and event.instance and which(event.instance):
            port = home.supervisor.get(event.instance).record.port
            here = (port, Squatter(port, reuse_port=reuse_port))
            squatters.setdefault(event.instance, []).append(here)

    home.listeners.append(squat)
    try:
        yield squatters
    finally:
        home.listeners.remove(squat)
        for port, squatter in (it for several in squatters.values() for it in several):
            assert squatter.answers(port)
            squatter.close()
