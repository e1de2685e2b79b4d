"""The typed client: one blocking connection to the daemon. Standard library and msgspec only."""

from supervisor.client.errors import ClientError, DaemonUnreachable, PermissionDenied, RpcError
from supervisor.client.typed import Client
from supervisor.client.wire import OnNotice

__all__ = [
    "Client",
    "ClientError",
    "DaemonUnreachable",
    "OnNotice",
    "PermissionDenied",
    "RpcError",
]
