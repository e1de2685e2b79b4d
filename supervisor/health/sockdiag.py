"""The server's side of a TCP connection of this host, as the kernel tells it.

``NETLINK_SOCK_DIAG`` answers an exact lookup within the ``send`` of the question (``sock_diag(7)``,
``net/ipv4/inet_diag.c``), so a query costs some 20 µs, socket included, and can never block: it
needs no thread and no privilege.
"""

import errno
import os
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum


class TcpState(IntEnum):
    """``include/net/tcp_states.h``."""

    ESTABLISHED = 1
    SYN_SENT = 2
    SYN_RECV = 3
    FIN_WAIT1 = 4
    FIN_WAIT2 = 5
    TIME_WAIT = 6
    CLOSE = 7
    CLOSE_WAIT = 8
    LAST_ACK = 9
    LISTEN = 10
    CLOSING = 11
    NEW_SYN_RECV = 12


@dataclass(frozen=True, slots=True)
class ServerSide:
    """The socket at the other end of a connection of ours."""

    state: TcpState
    inode: int
    """Zero while no process holds it: not accepted yet, or closed already."""
    uid: int
    cgroup: int | None
    """Inode of the listener's cgroup v2 directory; ``None`` where the kernel does not say."""

    @property
    def closed(self) -> bool:
        """Whether the server let go of it. (What waits for its accept has no inode either.)"""
        return self.inode == 0 and self.state not in _UNACCEPTED


_UNACCEPTED = frozenset(
    {TcpState.ESTABLISHED, TcpState.SYN_RECV, TcpState.NEW_SYN_RECV, TcpState.CLOSE_WAIT}
)


class Unprovable(Exception):
    """The kernel does not answer such questions, or not to us."""


def server_side(sock: socket.socket) -> ServerSide | None:
    """Find the other end of ``sock``; ``None``: this network namespace has no such socket.

    Raises ``OSError`` when ``sock`` is no longer connected, or when descriptors or memory ran out.
    """
    return _lookup(sock.family, sock.getpeername(), sock.getsockname())


def own_side(sock: socket.socket) -> ServerSide | None:
    """Find ``sock`` itself: a kernel without ``tcp_diag`` reports every pair as missing."""
    return _lookup(sock.family, sock.getsockname(), sock.getpeername())


_Name = tuple[str, int] | tuple[str, int, int, int]

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_INET_DIAG_CGROUP_ID = 21

_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")
_PORTS = struct.Struct("!HH")
_SOCKET_ID_TAIL = struct.Struct("=III")
_NO_COOKIE = 0xFFFFFFFF
_ALL_STATES = 0xFFFFFFFF
_SEQUENCE = 1

_REPLY = struct.Struct("=BBBB4s16s16s12xIIIII")
"""``inet_diag_msg``: family, state, 2 spare, ports, addresses; then expires, queues, uid, inode."""
_ATTRIBUTE = struct.Struct("=HH")
_CGROUP_ID = struct.Struct("=Q")

_ADDRESS_SIZE = {socket.AF_INET: 4, socket.AF_INET6: 16}
_MAPPED = bytes(10) + b"\xff\xff"
_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def _lookup(family: int, source: _Name, destination: _Name) -> ServerSide | None:
    src, dst = _packed(family, source), _packed(family, destination)
    ports = _PORTS.pack(source[1], destination[1])
    link = source[3] if len(source) == 4 else 0  # which belongs to a link-local address
    reply = _ask(_question(family, ports, src, dst, link))
    length, kind, *_ = _HEADER.unpack_from(reply)
    if kind == _NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", reply, _HEADER.size)
        if code == -errno.ENOENT:
            return None
        raise Unprovable(f"the kernel's socket diagnostics refused: {os.strerror(-code)}")
    if kind != _SOCK_DIAG_BY_FAMILY or length > len(reply):
        raise Unprovable("the kernel's socket diagnostics answered something else")
    told, state, _, _, *pair, _, _, _, uid, inode = _REPLY.unpack_from(reply, _HEADER.size)
    size = _ADDRESS_SIZE[told]
    found = (pair[0], _unmapped(pair[1][:size]), _unmapped(pair[2][:size]))
    # A pair that does not exist is answered with the listener that would have taken it.
    if state == TcpState.LISTEN or found != (ports, _unmapped(src), _unmapped(dst)):
        return None
    attributes = reply[_HEADER.size + _REPLY.size : length]
    return ServerSide(TcpState(state), inode, uid, _cgroup_id(attributes))


def _question(family: int, ports: bytes, src: bytes, dst: bytes, link: int) -> bytes:
    body = (
        _REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
        + ports
        + src.ljust(16, b"\0")
        + dst.ljust(16, b"\0")
        + _SOCKET_ID_TAIL.pack(link, _NO_COOKIE, _NO_COOKIE)
    )
    size = _HEADER.size + len(body)
    return _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _SEQUENCE, 0) + body


def _ask(question: bytes) -> bytes:
    """One socket a question: nothing is kept, nothing can be out of step, and forks share none."""
    family = getattr(socket, "AF_NETLINK", None)
    if family is None:
        raise Unprovable("this system has no netlink")
    try:
        with socket.socket(family, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
            netlink.setblocking(False)
            netlink.send(question)
            return netlink.recv(8192)
    except OSError as error:
        if error.errno in _PASSING:
            raise
        raise Unprovable(f"the kernel's socket diagnostics cannot be asked: {error}") from None


def _cgroup_id(attributes: bytes) -> int | None:
    offset = 0
    while offset + _ATTRIBUTE.size <= len(attributes):
        size, kind = _ATTRIBUTE.unpack_from(attributes, offset)
        if size < _ATTRIBUTE.size:
            break
        if kind == _INET_DIAG_CGROUP_ID and size == _ATTRIBUTE.size + _CGROUP_ID.size:
            (cgroup,) = _CGROUP_ID.unpack_from(attributes, offset + _ATTRIBUTE.size)
            return int(cgroup)
        offset += (size + 3) & ~3
    return None


def _packed(family: int, name: _Name) -> bytes:
    return socket.inet_pton(family, name[0].partition("%")[0])


def _unmapped(packed: bytes) -> bytes:
    """A dual-stack server's socket is IPv6 and shows ``::ffff:127.0.0.1`` for our IPv4."""
    return packed[12:] if len(packed) == 16 and packed.startswith(_MAPPED) else packed
