"""Proof that the server of a connection belongs to the instance, given before it is spoken to.

Afterwards would be too late: an HTTP/1.0 server has closed its side together with its reply. And
before also means that a stranger on the port gets neither the request nor the engine's API key.

A listener keeps the cgroup that it was opened in, and hands it to each connection before anybody
accepts that. So where the instance has a cgroup, the first look decides; elsewhere, and for what
was opened in another one, the connection has to be accepted and its holder found.
"""

import errno
from collections.abc import Callable
from typing import Protocol

import anyio

from supervisor.contracts.instance import Ownership
from supervisor.health.dial import Connection
from supervisor.health.outcome import Lost, Miss
from supervisor.health.pacing import look_pause_s
from supervisor.health.sockdiag import ServerSide, TcpState, Unprovable, own_side, server_side

DEFERRED_AFTER_S = 0.005
ABSENT_AFTER_S = 0.05
FOREIGN_AGAIN_S = 0.01
UNACCEPTED_S = 0.05
"""How long a stranger may take to accept before it is called one by its cgroup alone."""


class Owner(Protocol):
    """Who can tell whether a socket is held by the instance's tree."""

    async def owns_socket(self, inode: int) -> Ownership: ...

    async def owns_cgroup(self, inode: int) -> Ownership:
        """Of the cgroup that a socket was opened in; ``unknown`` where they do not tell."""
        ...

    async def publishes(self, port: int, *, again: bool = False) -> tuple[Ownership, str] | None:
        """Of a port that somebody else holds for the tree; ``None`` where nobody does."""
        ...


async def published(owner: Owner, port: int, *, again: bool = False) -> bool:
    """Whether who publishes the port vouches for it; False where the sockets are to be asked.

    Raises ``Miss`` where it leads elsewhere, and where its publisher cannot be asked, which says
    nothing about the engine.
    """
    told = await owner.publishes(port, again=again)
    if told is None:
        return False
    answer, why = told
    if answer != "ours":
        raise Miss("unproved" if answer == "unknown" else "unreachable", why)
    return True


async def prove(connection: Connection, owner: Owner, opening: str) -> None:
    """Return once the server's side is known to be ours; raise ``Miss`` when it is not.

    May wait as long as the connection is not accepted: the caller bounds that. A connection whose
    accept is deferred (``TCP_DEFER_ACCEPT``) is withheld from its server until data comes; there
    the first letter of ``opening``, which comes first on it anyway, goes ahead, alone.
    """
    began = anyio.current_time()
    suspect = 0
    opened: Ownership | None = None
    while True:
        side = _look(connection, server_side)
        waited = anyio.current_time() - began
        pause = look_pause_s(waited)
        if side is None:
            if waited >= ABSENT_AFTER_S:
                raise _absent(connection)
        elif side.closed:
            raise Lost("the server hung up before it was asked")
        elif (opened := opened or await _opened_by(side, owner)) == "ours":
            return
        elif side.inode:
            if await _is_ours(side, owner):
                return
            # Between accept and the descriptor's entry in the table nobody holds the socket, so
            # a stranger is one that still has it after the server had time to run.
            if side.inode == suspect:
                raise _foreign(connection, side)
            suspect, pause = side.inode, FOREIGN_AGAIN_S
        elif opened == "foreign" and waited >= UNACCEPTED_S:
            raise _foreign(connection, side)
        elif side.state is TcpState.SYN_RECV and waited >= DEFERRED_AFTER_S:
            connection.send_ahead(opening)
        await anyio.sleep(pause)


def _look(
    connection: Connection, end: Callable[[Connection], ServerSide | None]
) -> ServerSide | None:
    try:
        return end(connection)
    except Unprovable as reason:
        raise Miss("denied", f"the server cannot be proved: {reason}") from None
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            raise Lost("the server reset the connection before it was asked") from None
        raise Miss("unproved", f"the server could not be looked up: {error.strerror}") from None


def _absent(connection: Connection) -> Miss:
    if _look(connection, own_side) is None:
        return Miss("denied", "the kernel's socket diagnostics do not know TCP (tcp_diag)")
    return Miss(
        "unproved", f"{connection.place}: the server's side is not in this network namespace"
    )


def _foreign(connection: Connection, side: ServerSide) -> Miss:
    return Miss(
        "foreign",
        f"{connection.place} is served by a process outside the instance (uid {side.uid})",
    )


async def _opened_by(side: ServerSide, owner: Owner) -> Ownership | None:
    """Whose the listener is by its cgroup; None while the kernel does not tell that."""
    return None if side.cgroup is None else await owner.owns_cgroup(side.cgroup)


async def _is_ours(side: ServerSide, owner: Owner) -> bool:
    ownership = await owner.owns_socket(side.inode)
    if ownership == "unknown":
        raise Miss(
            "denied",
            f"whether socket {side.inode} (uid {side.uid}) is the instance's cannot be told",
        )
    return ownership == "ours"
