"""Who is at the other end of a connection, and what that uid may do."""

import os
import socket
import struct
from asyncio import trsock
from enum import IntEnum

from supervisor.contracts.config import AccessConfig

_CREDENTIALS = struct.Struct("3i")


class Role(IntEnum):
    """Each one may do what the ones before it may."""

    READ = 1
    OPERATE = 2
    ADMIN = 3


def peer_uid(connection: socket.socket | trsock.TransportSocket) -> int | None:
    """The uid that connected, as the kernel noted it; None where the kernel does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    try:
        credentials = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    except OSError:
        return None
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid


def role_of(uid: int | None, access: AccessConfig) -> Role | None:
    """The highest role that the config gives a uid. Root and the daemon's own uid are admin."""
    if uid is None:
        return None
    if uid in (0, os.geteuid()) or uid in access.admin:
        return Role.ADMIN
    if uid in access.operate:
        return Role.OPERATE
    return Role.READ if uid in access.read else None
