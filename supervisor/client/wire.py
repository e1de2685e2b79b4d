"""One blocking connection to the daemon: requests, replies, and what is told in between."""

import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from supervisor.client.errors import ClientError, DaemonUnreachable, PermissionDenied, RpcError
from supervisor.contracts.rpc import ErrorObject, Notification, SubscriptionEnded

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
"""For an answer that takes no waiting for an engine."""
GLANCE_SECONDS = 0.5
"""A wait without end is made of waits of this length: an interrupt that comes just before the
system call breaks nothing off, and Python acts on it only when the call returns.
"""

T = TypeVar("T")
Params = msgspec.Struct | msgspec.Raw
OnNotice = Callable[[Notification], None]


class _Message(msgspec.Struct):
    """A reply or a notification; which one it is shows in ``method``."""

    id: int | None = None
    result: msgspec.Raw | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: msgspec.Raw | UnsetType = UNSET


class Connection:
    """A connection to the daemon at ``path``. It is made by the first call, and then kept.

    Not for several threads. Notifications that arrive while a reply is awaited are kept for the
    iterator that they belong to.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._scanned = 0
        self._count = 0
        self._notices: deque[Notification] = deque()
        self._decoder = msgspec.json.Decoder(_Message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._received.clear()
        self._scanned = 0
        self._notices.clear()

    def raw(
        self,
        method: str,
        params: Params | None = None,
        *,
        timeout: float | None = READ_SECONDS,
        on_notice: OnNotice | None = None,
    ) -> bytes:
        """The result's own bytes. ``on_notice`` gets what is told meanwhile, instead of a queue.

        Raises ``RpcError``, ``DaemonUnreachable``, ``PermissionDenied``.
        """
        self._count += 1
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": self._count, "method": method}
        if params is not None:
            request["params"] = params
        self._send(msgspec.json.encode(request) + b"\n", timeout)
        while True:
            message = self._receive(timeout)
            if message.method is not UNSET:
                (on_notice or self._notices.append)(_notification(message))
            elif message.error is not UNSET and message.id in (None, self._count):
                raise RpcError(message.error)
            elif message.id == self._count and message.result is not UNSET:
                return bytes(message.result)

    def call(
        self,
        method: str,
        params: Params | None,
        result: type[T],
        *,
        timeout: float | None = READ_SECONDS,
        on_notice: OnNotice | None = None,
    ) -> T:
        """The decoded result. Raises like ``raw``."""
        reply = self.raw(method, params, timeout=timeout, on_notice=on_notice)
        try:
            return msgspec.json.decode(reply, type=result)
        except msgspec.ValidationError as error:
            raise ClientError(
                f"the daemon's answer to {method} is not understood: {error}"
            ) from None

    def notices(self, subscription: str) -> Iterator[Notification]:
        """What comes of a subscription until it ends. Raises ``RpcError`` where it ends badly."""
        while (notice := self._next_of(subscription)).method != "subscription.ended":
            yield notice
        ended = msgspec.json.decode(notice.params, type=SubscriptionEnded)
        if ended.error is not UNSET:
            raise RpcError(ended.error)

    def _next_of(self, subscription: str) -> Notification:
        for index, notice in enumerate(self._notices):
            if _subscription(notice) == subscription:
                del self._notices[index]
                return notice
        while True:
            message = self._receive(None)
            if message.method is not UNSET:
                notice = _notification(message)
                if _subscription(notice) == subscription:
                    return notice
                self._notices.append(notice)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(CONNECT_SECONDS)
            try:
                connection.connect(self.path)
            except OSError as error:
                connection.close()
                raise _not_connected(self.path, error) from None
            self._socket = connection
        return self._socket

    def _send(self, line: bytes, timeout: float | None) -> None:
        connection = self._connected()
        connection.settimeout(timeout)
        try:
            connection.sendall(line)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it hung up; if it said why, that can still be read
        except OSError as error:
            raise self._lost(error) from None

    def _receive(self, timeout: float | None) -> _Message:
        connection = self._connected()
        connection.settimeout(GLANCE_SECONDS if timeout is None else timeout)
        while (end := self._received.find(b"\n", self._scanned)) < 0:
            self._scanned = len(self._received)
            try:
                chunk = connection.recv(256 * 1024)
            except OSError as error:
                if timeout is None and isinstance(error, TimeoutError):
                    continue
                raise self._lost(error) from None
            if not chunk:
                raise self._lost(None)
            self._received += chunk
        line = bytes(memoryview(self._received)[:end])
        del self._received[: end + 1]
        self._scanned = 0
        try:
            return self._decoder.decode(line)
        except msgspec.DecodeError:
            self.close()
            raise DaemonUnreachable(f"what answers at {self.path} is not this daemon") from None

    def _lost(self, error: OSError | None) -> DaemonUnreachable:
        self.close()
        if isinstance(error, TimeoutError):
            return DaemonUnreachable(f"the daemon at {self.path} does not answer", lost=True)
        return DaemonUnreachable(f"the daemon at {self.path} closed the connection", lost=True)


def _not_connected(path: str, error: OSError) -> ClientError:
    if isinstance(error, PermissionError):
        return PermissionDenied(f"this user may not open {path}")
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return DaemonUnreachable(f"no daemon is listening at {path}")
    if isinstance(error, TimeoutError):
        return DaemonUnreachable(f"the daemon at {path} does not answer")
    return DaemonUnreachable(f"cannot connect to {path}: {error.strerror or error}")


def _notification(message: _Message) -> Notification:
    assert message.method is not UNSET
    params = msgspec.Raw(b"{}") if message.params is UNSET else message.params
    return Notification(method=message.method, params=params)


class _Subscribed(msgspec.Struct):
    subscription: str = ""


def _subscription(notice: Notification) -> str:
    return msgspec.json.decode(notice.params, type=_Subscribed).subscription
