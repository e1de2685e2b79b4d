"""Why a call has no result."""

import msgspec
from msgspec import UNSET

from supervisor.contracts.event import Cursor
from supervisor.contracts.failure import LaunchFailure
from supervisor.contracts.rpc import CURSOR_EXPIRED, FORBIDDEN, ErrorObject, ExpiredCursor


class ClientError(Exception):
    """Any reason why a call has no result. Its text is for people."""


class DaemonUnreachable(ClientError):
    """No daemon answers, or it stopped answering."""

    def __init__(self, text: str, *, lost: bool = False) -> None:
        super().__init__(text)
        self.lost = lost
        """There was a connection, so the daemon may have begun what it was asked for."""


class PermissionDenied(ClientError):
    """The daemon's socket may not be opened by this user."""


class RpcError(ClientError):
    """The daemon's error reply."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(error.message)
        self.code = error.code
        self.message = error.message
        self.data = None if error.data is UNSET else bytes(error.data)

    @property
    def failure(self) -> LaunchFailure | None:
        """Why the launch failed, where that is what the error says."""
        if self.data is None or not 1001 <= self.code <= 1008:
            return None
        return msgspec.json.decode(self.data, type=LaunchFailure)

    @property
    def forbidden(self) -> bool:
        return self.code == FORBIDDEN

    @property
    def valid_cursor(self) -> Cursor | None:
        """Where an event reader whose place has expired can go on from."""
        if self.data is None or self.code != CURSOR_EXPIRED:
            return None
        return msgspec.json.decode(self.data, type=ExpiredCursor).cursor
