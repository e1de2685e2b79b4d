"""A connection of our own to one address, opened and not yet trusted."""

import errno
import os
import socket
import struct
from ipaddress import ip_address

import anyio

from supervisor.health.address import IPAddress, socket_address
from supervisor.health.outcome import Lost, Miss

_CLOSED_AT_ONCE = "the server closed the connection at once"
_HANG_UP = struct.pack("=ii", 1, 0)


class Connection(socket.socket):
    """A connected socket that knows whom it reached, and what it said already."""

    place = ""
    """The server's address and port, as they are written in a URL."""
    host = ""
    """The same, as the server is told it: which link of ours leads to it is not its business."""
    ahead = ""
    """What was sent of the request before the rest: nothing, or the first letter."""

    def send_ahead(self, opening: str) -> None:
        """Wake a server that sleeps until data comes, with no more than has to be."""
        if self.ahead:
            return
        try:
            self.send(opening[:1].encode())
        except OSError as error:
            raise Lost(f"{self.place}: {error.strerror}") from None
        self.ahead = opening[:1]


def where(address: IPAddress, port: int) -> str:
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


async def dial(address: IPAddress, port: int) -> Connection:
    """Connect, or raise ``Miss``. Cancelled, it leaves nothing behind.

    On loopback the kernel has the answer by the time ``connect`` returns, so that a refusal costs
    three system calls (16 µs) and no turn of the loop.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    place = where(address, port)
    try:
        target = socket_address(address, port)
        sock = Connection(family, socket.SOCK_STREAM)
    except OSError as error:
        raise Miss("unreachable", f"no socket for {place}: {error.strerror or error}") from None
    try:
        sock.place = place
        sock.host = where(ip_address(target[0]), port)
        sock.setblocking(False)
        code = sock.connect_ex(target)
        if code == errno.EINPROGRESS:
            code = _error_of(sock)
            if not code and not _is_connected(sock):
                await anyio.wait_writable(sock)
                code = _error_of(sock)
        if code == errno.ECONNRESET:
            raise Lost(f"{place}: {_CLOSED_AT_ONCE}")
        if code:
            raise Miss(
                "refused" if code == errno.ECONNREFUSED else "unreachable",
                f"{place}: {os.strerror(code)}",
            )
        _refuse_ourselves(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


def _refuse_ourselves(sock: Connection, place: str) -> None:
    """Connect to a free port of the ephemeral range often enough, and TCP meets itself there.

    Closed the usual way such a connection would keep the engine's port for a minute (TIME_WAIT).
    """
    try:
        itself = sock.getsockname() == sock.getpeername()
    except OSError:
        raise Lost(f"{place}: {_CLOSED_AT_ONCE}") from None
    if itself:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _HANG_UP)
        raise Miss("refused", f"{place}: nothing listens, the probe met itself")


def _error_of(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True
