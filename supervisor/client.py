"""The typed client: one blocking connection to the daemon. Standard library and msgspec only."""

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from supervisor.contracts.device import DeviceLeases, DeviceSnapshot
from supervisor.contracts.event import Cursor
from supervisor.contracts.failure import LaunchFailure
from supervisor.contracts.host import HostProfile
from supervisor.contracts.instance import InstanceView, LaunchParams
from supervisor.contracts.rpc import (
    CURSOR_EXPIRED,
    FORBIDDEN,
    DetectReply,
    DrainParams,
    DrainReply,
    EngineListing,
    ErrorObject,
    EventNotice,
    EventsRead,
    ExpiredCursor,
    InstanceDetail,
    InstanceListing,
    ListParams,
    LogLines,
    LogNotice,
    LogsParams,
    MetricsReply,
    MetricsText,
    NameParams,
    NoParams,
    Notification,
    PinParams,
    PlanReply,
    ReadEventsParams,
    ReleaseParams,
    ReleaseReply,
    StopParams,
    SubscribeParams,
    Subscription,
    SubscriptionEnded,
    SupervisorInfo,
    UnsubscribeParams,
    WaitParams,
)

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
"""For an answer that takes no waiting for an engine."""
GLANCE_SECONDS = 0.5
"""A wait without end is made of waits of this length: an interrupt that comes just before the
system call breaks nothing off, and Python acts on it only when the call returns.
"""
RETURN_SECONDS = 30.0
"""How long a daemon that went away may take to come back."""

T = TypeVar("T")
Params = msgspec.Struct | msgspec.Raw
OnNotice = Callable[[Notification], None]


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


class _Message(msgspec.Struct):
    """A reply or a notification; which one it is shows in ``method``."""

    id: int | None = None
    result: msgspec.Raw | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: msgspec.Raw | UnsetType = UNSET


class Client:
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

    def __enter__(self) -> "Client":
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

    # Calls.

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

    def info(self) -> SupervisorInfo:
        return self.call("supervisor.info", NoParams(), SupervisorInfo)

    def profile(self) -> HostProfile:
        return self.call("host.profile", NoParams(), HostProfile)

    def snapshot(self) -> DeviceSnapshot:
        return self.call("device.snapshot", NoParams(), DeviceSnapshot)

    def leases(self) -> DeviceLeases:
        return self.call("device.leases", NoParams(), DeviceLeases)

    def engines(self) -> EngineListing:
        return self.call("engine.list", NoParams(), EngineListing)

    def detect(self) -> DetectReply:
        return self.call("engine.detect", NoParams(), DetectReply)

    def plan(self, params: LaunchParams) -> PlanReply:
        return self.call("engine.plan", params, PlanReply)

    def launch(self, params: LaunchParams) -> InstanceView:
        return self.call("instance.launch", params, InstanceView, timeout=None)

    def list(self, *, ended: bool = False) -> InstanceListing:
        return self.call("instance.list", ListParams(all=ended), InstanceListing)

    def get(self, name: str) -> InstanceDetail:
        return self.call("instance.get", NameParams(name=name), InstanceDetail)

    def stop(self, params: StopParams) -> InstanceView:
        return self.call("instance.stop", params, InstanceView, timeout=None)

    def cancel(self, params: StopParams) -> InstanceView:
        return self.call("instance.cancel", params, InstanceView, timeout=None)

    def restart(self, params: StopParams) -> InstanceView:
        return self.call("instance.restart", params, InstanceView, timeout=None)

    def pin(self, params: PinParams) -> InstanceView:
        return self.call("instance.pin", params, InstanceView)

    def release(self, name: str, *, force: bool = False) -> ReleaseReply:
        params = ReleaseParams(name=name, force=force)
        return self.call("instance.release", params, ReleaseReply, timeout=None)

    def drain(self, params: DrainParams) -> DrainReply:
        return self.call("supervisor.drain", params, DrainReply, timeout=None)

    def wait(
        self,
        name: str,
        until: Literal["ready", "exited"] = "ready",
        *,
        timeout_ms: int | UnsetType = UNSET,
    ) -> InstanceView:
        params = WaitParams(name=name, for_=until, timeout_ms=timeout_ms)
        return self.call("instance.wait", params, InstanceView, timeout=None)

    def logs(self, name: str, lines: int = 100) -> LogLines:
        return self.call("instance.logs", LogsParams(name=name, lines=lines), LogLines)

    def metrics(self, name: str) -> MetricsReply:
        return self.call("instance.metrics", NameParams(name=name), MetricsReply)

    def metrics_text(self) -> str:
        return self.call("metrics.text", NoParams(), MetricsText).text

    # Subscriptions.

    def subscribe(self, params: SubscribeParams) -> Subscription:
        return self.call("event.subscribe", params, Subscription)

    def unsubscribe(self, subscription: str) -> None:
        self.raw("event.unsubscribe", UnsubscribeParams(subscription=subscription))

    def events(self, subscription: str) -> Iterator[bytes]:
        """The events of a subscription as their JSON objects, as they come, without end.

        Raises ``RpcError`` when the reader was too slow and its place in the stream is gone.
        """
        for notice in self.notices(subscription):
            yield bytes(msgspec.json.decode(notice.params, type=EventNotice).event)

    def read_events(self, params: ReadEventsParams) -> EventsRead:
        return self.call("event.read", params, EventsRead)

    def follow_events(
        self, params: SubscribeParams, on_missed: Callable[[Cursor], None]
    ) -> Iterator[bytes]:
        """The events of a subscription as their JSON objects, without end; where the daemon is
        started again meanwhile, which takes it seconds, from where it was.

        ``on_missed`` is told where it goes on after a place that the daemon does not know any more.
        Raises ``RpcError`` for one that it did not know at first.
        """
        lost_at: float | None = None
        begun = False
        while True:
            try:
                subscription = self.subscribe(params)
                lost_at, begun = None, True
                if params.after is UNSET:
                    params = replace(params, after=subscription.cursor)
                for event in self.events(subscription.subscription):
                    params = replace(params, after=msgspec.json.decode(event, type=Cursor))
                    yield event
            except RpcError as error:
                if not begun or error.valid_cursor is None:
                    raise
                on_missed(error.valid_cursor)
                params = replace(params, after=error.valid_cursor)
            except DaemonUnreachable:
                now = time.monotonic()
                lost_at = lost_at or now
                if not begun or now - lost_at > RETURN_SECONDS:
                    raise
                self.close()
                time.sleep(0.2)

    def follow(self, name: str, lines: int = 100) -> Iterator[tuple[str, ...]]:
        """The end of a log, then whatever comes behind it until the instance has ended.

        Goes on where it was when the daemon is started again meanwhile, which takes it seconds.
        """
        for told in self.follow_raw(name, lines):
            yield msgspec.json.decode(told, type=_Lines).lines

    def follow_raw(self, name: str, lines: int = 100) -> Iterator[bytes]:
        """The same as it comes: a result of ``instance.logs``, then params of ``log``
        notifications; after a restart of the daemon another result.
        """
        params = LogsParams(name=name, lines=lines, follow=True)
        lost_at: float | None = None
        while True:
            try:
                reply = self.raw("instance.logs", params)
                begun = msgspec.json.decode(reply, type=LogLines)
                lost_at = None
                params = LogsParams(name=name, follow=True, log=begun.log, after=begun.cursor)
                yield reply
                for told in self.notices(begun.subscription or ""):
                    notice = msgspec.json.decode(told.params, type=LogNotice)
                    params = LogsParams(name=name, follow=True, log=notice.log, after=notice.cursor)
                    yield bytes(told.params)
                return
            except DaemonUnreachable:
                now = time.monotonic()
                lost_at = lost_at or now
                if params.after is UNSET or now - lost_at > RETURN_SECONDS:
                    raise
                self.close()
                time.sleep(0.2)

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

    # The wire.

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


class _Lines(msgspec.Struct):
    """As much of an answer about a log as is for reading."""

    lines: tuple[str, ...]


class _Subscribed(msgspec.Struct):
    subscription: str = ""


def _subscription(notice: Notification) -> str:
    return msgspec.json.decode(notice.params, type=_Subscribed).subscription
