"""The daemon's methods, typed; and the streams that outlive the daemon."""

import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from supervisor.client.errors import DaemonUnreachable, RpcError
from supervisor.client.wire import Connection
from supervisor.contracts.device import DeviceLeases, DeviceSnapshot
from supervisor.contracts.event import Cursor
from supervisor.contracts.host import HostProfile
from supervisor.contracts.instance import InstanceView, LaunchParams
from supervisor.contracts.rpc import (
    DetectReply,
    DrainParams,
    DrainReply,
    EngineListing,
    EventNotice,
    EventsRead,
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
    PinParams,
    PlanReply,
    ReadEventsParams,
    ReleaseParams,
    ReleaseReply,
    StopParams,
    SubscribeParams,
    Subscription,
    SupervisorInfo,
    UnsubscribeParams,
    WaitParams,
)

RETURN_SECONDS = 30.0
"""How long a daemon that went away may take to come back."""


class Client(Connection):
    """Each method by its name; those that wait for an engine wait for as long as it takes.

    All raise ``RpcError``, ``DaemonUnreachable`` and ``PermissionDenied``.
    """

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


class _Lines(msgspec.Struct):
    """As much of an answer about a log as is for reading."""

    lines: tuple[str, ...]
