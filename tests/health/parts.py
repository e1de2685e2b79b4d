"""Servers with real sockets, and an owner that looks into the real ``/proc``."""

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from msgspec import UNSET

from supervisor.contracts.engine import HealthCheck, ReadyRequest
from supervisor.contracts.instance import Ownership
from supervisor.health.address import Addresses
from supervisor.health.probe import Probe

Handler = Callable[[socket.socket], None]

EVERY = 1_000_000
CHILD = Path(__file__).with_name("child.py")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 7\r\n\r\nLoading"


def with_body(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def read_request(conn: socket.socket) -> bytes:
    """One request, its body included; empty at the end of the stream."""
    got = b""
    while b"\r\n\r\n" not in got:
        chunk = conn.recv(65536)
        if not chunk:
            return b""
        got += chunk
    head, _, body = got.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            while len(body) < int(line.split(b":")[1]):
                body += conn.recv(65536)
    return head + b"\r\n\r\n" + body


def replies(*answers: bytes) -> Handler:
    """Answers each request of a connection with the next one, the last of them for ever."""

    def handle(conn: socket.socket) -> None:
        index = 0
        while read_request(conn):
            conn.sendall(answers[min(index, len(answers) - 1)])
            index += 1

    return handle


def silent(conn: socket.socket) -> None:
    """Read, and never answer."""
    while conn.recv(65536):
        pass


def hang_up(conn: socket.socket) -> None:
    """Close with a reset."""
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


class Server:
    """Listens at once, accepts on a thread, handles every connection on one of its own.

    It stops accepting after ``accepts`` connections, as an engine does that hangs.
    """

    def __init__(
        self,
        handler: Handler,
        host: str = "127.0.0.1",
        *,
        port: int = 0,
        accepts: int = EVERY,
        backlog: int = 16,
        deferred: bool = False,
        dual_stack: bool = False,
    ) -> None:
        self.handler = handler
        self.accepted = 0
        self.reached: list[str] = []
        """Our address of each connection."""
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if ":" in host:
            self._listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual_stack)
        if deferred:
            self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
        # Looked up, for a tuple of two has no place for the link of a link-local address.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self._listener.bind(found[0][4])
        self._listener.listen(backlog)
        self.port: int = self._listener.getsockname()[1]
        self._stopping = False
        self._turns = threading.Semaphore(accepts)
        self._spawn(self._accept_all)

    def accept_more(self) -> None:
        """Go on after the first ``accepts`` connections."""
        self._turns.release(EVERY)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self.accept_more()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for conn in self._connections:
            with suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        self._listener.close()
        for conn in self._connections:
            conn.close()

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept_all(self) -> None:
        while self._turns.acquire() and not self._stopping:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.accepted += 1
            self.reached.append(conn.getsockname()[0])
            self._connections.append(conn)
            self._spawn(self._handle, conn)

    def _handle(self, conn: socket.socket) -> None:
        with suppress(OSError):
            self.handler(conn)
        conn.close()


class FdOwner:
    """A tree of processes, given as their pids; looks at their descriptors."""

    def __init__(self, *pids: int) -> None:
        self.pids = pids or (os.getpid(),)
        self.asked: list[int] = []

    async def owns_socket(self, inode: int) -> Ownership:
        self.asked.append(inode)
        wanted = f"socket:[{inode}]"
        for pid in self.pids:
            with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
                for entry in descriptors:
                    with suppress(OSError):
                        if os.readlink(entry) == wanted:
                            return "ours"
        return "foreign"

    async def owns_cgroup(self, inode: int) -> Ownership:
        return "unknown"

    async def publishes(self, port: int, *, again: bool = False) -> None:
        return None


class Says:
    """An owner that always says the same."""

    def __init__(self, ownership: Ownership) -> None:
        self.ownership = ownership

    async def owns_socket(self, inode: int) -> Ownership:
        return self.ownership

    async def owns_cgroup(self, inode: int) -> Ownership:
        return "unknown"

    async def publishes(self, port: int, *, again: bool = False) -> tuple[Ownership, str] | None:
        return None


@dataclass(frozen=True)
class Child:
    """A server in a process of its own."""

    pid: int
    port: int
    output: IO[str]

    def flipped_ns(self) -> int:
        """The monotonic moment from which it answered; waits for it."""
        return int(self.output.readline())


@contextmanager
def child_server(
    answer: bytes, *, port: int = 0, reuse_port: bool = False, flip_after: float = -1
) -> Iterator[Child]:
    """Answers so to everything: at once, or with 503 until ``flip_after`` seconds have passed."""
    argv = [sys.executable, "-I", "-S", str(CHILD), answer.hex(), str(port), str(int(reuse_port))]
    with subprocess.Popen(
        [*argv, str(flip_after)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Child(process.pid, int(process.stdout.readline()), process.stdout)
        finally:
            process.kill()


def check(
    path: str = "/health", *, timeout_ms: int = 2_000, ready: ReadyRequest | None = None
) -> HealthCheck:
    return HealthCheck(
        path=path,
        ready_deadline_ms=10_000,
        interval_ms=1_000,
        timeout_ms=timeout_ms,
        ready=UNSET if ready is None else ready,
    )


def probe_of(
    port: int,
    host: str = "127.0.0.1",
    *,
    owner: FdOwner | Says | None = None,
    health: HealthCheck | None = None,
    api_key: str | None = None,
) -> Probe:
    return Probe(Addresses(host), port, health or check(), owner or FdOwner(), api_key=api_key)


def free_port() -> int:
    """Of nobody at the moment, and below the ephemeral range, so that nobody will have it."""
    for port in range(21_000, 32_000):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))
