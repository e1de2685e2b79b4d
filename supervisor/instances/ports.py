"""Ports: the records say which are given out, the kernel which are free."""

import errno
import ipaddress
import random
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from supervisor.contracts.host import SELF
from supervisor.contracts.instance import InstanceRecord

PortState = Literal["free", "taken", "denied", "no-address"]
"""``denied``: this user may not bind it (below 1024). ``no-address``: the host is not ours."""

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_IANA_EPHEMERAL: Final = (49_152, 65_535)
"""What kernels without that file (macOS) use."""


def taken_ports(records: Mapping[str, InstanceRecord]) -> frozenset[int]:
    """Ports of this host that records hold, those of mere reservations included."""
    return frozenset(
        record.port for record in records.values() if record.node_id == SELF and record.port
    )


def port_state(host: str, port: int) -> PortState:
    """Whether a server could listen there now, found out as a server does.

    It binds with ``SO_REUSEADDR`` and listens, so that a connection in TIME_WAIT is in nobody's
    way and a listener is, on a wildcard address as well. ``::`` is taken to mean both families.
    For a host name every address must do; looking it up can block.
    """
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        return "no-address"
    literal = _is_literal(host)
    states = [_try(family, address) for family, _, _, _, address in found]
    if not literal:  # a name may have an address of a family that this host does not speak
        states = [state for state in states if state != "no-address"] or states
    order: tuple[PortState, ...] = ("no-address", "denied", "taken", "free")
    return min(states, key=order.index, default="no-address")


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now; ``port_state`` says why not."""
    return port_state(host, port) == "free"


def pick(
    first: int,
    last: int,
    host: str,
    taken: frozenset[int],
    *,
    start: int | None = None,
    free: Callable[[str, int], bool] = is_free,
) -> int | None:
    """A port of the pool that neither a record nor a stranger holds, or ``None``.

    The search begins at ``start``, else anywhere: a port that was just given back is not the next
    one given out, so a client of the old engine does not meet the new one.
    """
    size = last - first + 1
    offset = random.randrange(size) if start is None else start - first
    for step in range(size):
        port = first + (offset + step) % size
        if port not in taken and free(host, port):
            return port
    return None


def overlaps_ephemeral(first: int, last: int, source: Path = _EPHEMERAL) -> bool:
    """Whether the kernel may give a port of this range to any outgoing connection."""
    try:
        low, high = (int(word) for word in source.read_text().split())
    except (OSError, ValueError):
        low, high = _IANA_EPHEMERAL
    return first <= high and low <= last


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _try(family: int, address: tuple[Any, ...]) -> PortState:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            server.bind(address)
            server.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "taken"
        if error.errno in (errno.EACCES, errno.EPERM):
            return "denied"
        return "no-address"
    return "free"
