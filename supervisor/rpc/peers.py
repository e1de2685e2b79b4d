"""Who is at the other end of a connection, and what that uid may do."""

import os
import socket
import struct
from asyncio import trsock
from enum import IntEnum

from msgspec import UNSET

from supervisor.contracts.config import AccessConfig
from supervisor.contracts.instance import LaunchParams

_CREDENTIALS = struct.Struct("3i")
_LOADER_PREFIXES = ("LD_", "DYLD_", "PYTHON")


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


def needs_admin(params: LaunchParams) -> str | None:
    """What in a launch only an admin may say, for it chooses the code that runs as the daemon."""
    if params.command is not UNSET:
        return "`command`"
    if params.binary is not UNSET:
        return "`binary`"
    for name in params.env or ():
        if name == "PATH" or name.startswith(_LOADER_PREFIXES):
            return f"the variable {name}"
    return None
