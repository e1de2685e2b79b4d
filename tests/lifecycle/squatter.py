"""A server that is nobody's engine and says yes to everybody."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

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
