"""Every method of the daemon, in the order of the documentation."""

import os
from functools import cache
from typing import Any, TypeVar

import anyio
import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from supervisor.bus import Published
from supervisor.contracts import rpc
from supervisor.contracts.device import DeviceLeases, DeviceSnapshot
from supervisor.contracts.event import Cursor
from supervisor.contracts.host import HostProfile
from supervisor.contracts.instance import InstanceView, LaunchParams
from supervisor.contracts.rpc import (
    DetectReply,
    Done,
    DrainParams,
    DrainReply,
    EngineListing,
    EventsRead,
    InstanceDetail,
    InstanceListing,
    ListParams,
    LogLines,
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
    ReloadReply,
    StopParams,
    SubscribeParams,
    Subscription,
    SupervisorInfo,
    UnsubscribeParams,
    WaitParams,
)
from supervisor.logs import reading as logs
from supervisor.patience import Overdue, Patience
from supervisor.rpc.exposition import exposition
from supervisor.rpc.faults import Fault
from supervisor.rpc.filters import wanted
from supervisor.rpc.method import Session, Table, Then
from supervisor.rpc.openrpc import document
from supervisor.rpc.peers import Role

METHODS = Table()

LOG_S = 10.0
_log_tails = Patience("reading the ends of logs", 4)

T = TypeVar("T")


@METHODS.method("supervisor.info", Role.READ, "Who this daemon is")
def _info(session: Session, params: NoParams) -> SupervisorInfo:
    return session.supervisor.info()


@METHODS.method("host.profile", Role.READ, "What kind of host this is")
async def _profile(session: Session, params: NoParams) -> HostProfile:
    return await session.supervisor.profile()


@METHODS.method("device.snapshot", Role.READ, "The devices and the host at this moment")
async def _snapshot(session: Session, params: NoParams) -> DeviceSnapshot:
    return await session.supervisor.snapshot()


@METHODS.method("device.leases", Role.READ, "Who holds which device")
async def _leases(session: Session, params: NoParams) -> DeviceLeases:
    return await session.supervisor.leases()


@METHODS.method("engine.list", Role.READ, "The engines, and whether they run here")
async def _engines(session: Session, params: NoParams) -> EngineListing:
    return await session.supervisor.engines()


@METHODS.method("engine.plan", Role.READ, "What a launch would run; nothing is done")
async def _plan(session: Session, params: LaunchParams) -> PlanReply:
    return await session.supervisor.plan(params, bounded=session.role < Role.ADMIN)


@METHODS.method("engine.detect", Role.READ, "The engines among this host's processes")
async def _detect(session: Session, params: NoParams) -> DetectReply:
    return await session.supervisor.detect()


@METHODS.method("instance.launch", Role.OPERATE, "Launch an engine, and reply once it is ready")
async def _launch(session: Session, params: LaunchParams) -> InstanceView:
    return await session.supervisor.launch(params, bounded=session.role < Role.ADMIN)


@METHODS.method("instance.list", Role.READ, "The instances, and the place in the event stream")
def _list(session: Session, params: ListParams) -> InstanceListing:
    return InstanceListing(
        instances=session.supervisor.list(ended=params.all),
        cursor=session.bus.cursor,
        unreadable=session.supervisor.unreadable() or UNSET,
    )


@METHODS.method("instance.get", Role.READ, "One instance, alive or ended")
def _get(session: Session, params: NameParams) -> InstanceDetail:
    view = session.supervisor.get(params.name)
    members = {name: getattr(view, name) for name in InstanceView.__struct_fields__}
    return InstanceDetail(**members, cursor=session.bus.cursor)


@METHODS.method(
    "instance.stop", Role.OPERATE, "End an instance; reply once its devices are free", finishes=True
)
async def _stop(session: Session, params: StopParams) -> InstanceView:
    return await session.supervisor.stop(
        params.name, nonce=_given(params.nonce), grace_ms=_given(params.grace_ms)
    )


@METHODS.method(
    "instance.cancel", Role.OPERATE, "End a launch that is not ready yet", finishes=True
)
async def _cancel(session: Session, params: StopParams) -> InstanceView:
    return await session.supervisor.cancel(
        params.name, nonce=_given(params.nonce), grace_ms=_given(params.grace_ms)
    )


@METHODS.method(
    "instance.restart", Role.OPERATE, "End an engine and start it again as it was", finishes=True
)
async def _restart(session: Session, params: StopParams) -> InstanceView:
    return await session.supervisor.restart(
        params.name, nonce=_given(params.nonce), grace_ms=_given(params.grace_ms)
    )


@METHODS.method(
    "supervisor.reload",
    Role.ADMIN,
    "Read the configuration anew; reopen the journal",
    finishes=True,
)
async def _reload(session: Session, params: NoParams) -> ReloadReply:
    return await session.supervisor.reload()


@METHODS.method(
    "supervisor.drain", Role.OPERATE, "Stop every instance; meanwhile nothing starts", finishes=True
)
async def _drain(session: Session, params: DrainParams) -> DrainReply:
    return await session.supervisor.drain(grace_ms=_given(params.grace_ms))


@METHODS.method(
    "instance.pin", Role.OPERATE, "Hold devices without a process, until released", finishes=True
)
async def _pin(session: Session, params: PinParams) -> InstanceView:
    return await session.supervisor.pin(params)


@METHODS.method(
    "instance.release", Role.OPERATE, "Give up a hold that has no process", finishes=True
)
async def _release(session: Session, params: ReleaseParams) -> ReleaseReply:
    return await session.supervisor.release(params.name, force=params.force)


@METHODS.method("instance.wait", Role.READ, "Reply once an instance is ready, or has ended")
async def _wait(session: Session, params: WaitParams) -> InstanceView:
    return await session.supervisor.wait(
        params.name,
        nonce=_given(params.nonce),
        until=params.for_,
        timeout_ms=_given(params.timeout_ms),
    )


@METHODS.method(
    "instance.logs",
    Role.READ,
    "The end of an engine's log; with `follow`, then `log` notifications",
    result=LogLines,
)
async def _logs(session: Session, params: LogsParams) -> LogLines | Then:
    path = session.supervisor.log_path(params.name)
    mask = session.supervisor.redactor(params.name)

    def read() -> tuple[str, logs.Chunk]:
        if params.after is UNSET:
            return path, logs.tail(path, params.lines, mask, unfinished=not params.follow)
        at, after = logs.earlier(path, params.log or os.path.basename(path), params.after)
        return at, logs.Chunk((), after) if params.follow else logs.read_from(at, after, mask)

    try:
        at, found = await _log_tails.run(read, within_s=LOG_S)
    except Overdue as error:
        raise Fault(rpc.UNAVAILABLE, f"cannot read {path}: {error}") from None
    except OSError as error:
        raise Fault(rpc.UNAVAILABLE, f"cannot read {path}: {error.strerror}") from None
    reply = LogLines(lines=found.lines, cursor=found.cursor, log=os.path.basename(at))
    if not params.follow:
        return reply
    name = session.subscriptions.reserve()
    return Then(
        replace(reply, subscription=name),
        lambda: session.subscriptions.start_log(
            name, session.supervisor, params.name, at, found.cursor
        ),
    )


@METHODS.method("instance.metrics", Role.READ, "An engine's load, in words common to all engines")
async def _metrics(session: Session, params: NameParams) -> MetricsReply:
    return await session.supervisor.metrics(params.name)


@METHODS.method("metrics.text", Role.READ, "The supervisor's own metrics, as Prometheus reads them")
async def _metrics_text(session: Session, params: NoParams) -> MetricsText:
    return MetricsText(text=await exposition(session.supervisor, session.bus))


@METHODS.method(
    "event.subscribe", Role.READ, "Get events, as `event` notifications", result=Subscription
)
def _subscribe(session: Session, params: SubscribeParams) -> Then:
    wants = wanted(params)
    place = session.bus.subscribe(_given(params.after))
    name = session.subscriptions.reserve()
    return Then(
        Subscription(subscription=name, cursor=session.bus.cursor),
        lambda: session.subscriptions.start_events(name, place, wants),
    )


@METHODS.method("event.read", Role.READ, "The events after a place, for who cannot be called back")
async def _read_events(session: Session, params: ReadEventsParams) -> EventsRead:
    wants = wanted(params)
    if params.last is not UNSET:
        if params.after is not UNSET:
            raise Fault(rpc.INVALID_PARAMS, "either the newest, or those after a place - at `$`")
        return _read(session.bus.newest(params.last, wants), session.bus.cursor)
    place = session.bus.subscribe(_given(params.after))
    events: tuple[Published, ...] = ()
    with anyio.move_on_after(params.wait_ms / 1_000):
        while not events:
            events = tuple(filter(wants, await place.next(params.limit)))
    return _read(events, place.cursor)


def _read(events: tuple[Published, ...], cursor: Cursor) -> EventsRead:
    return EventsRead(events=tuple(msgspec.Raw(it.encoded) for it in events), cursor=cursor)


@METHODS.method("event.unsubscribe", Role.READ, "End a subscription, to events or to a log")
def _unsubscribe(session: Session, params: UnsubscribeParams) -> Done:
    if not session.subscriptions.end(params.subscription):
        raise Fault(
            rpc.INVALID_PARAMS,
            f"this connection has no subscription {params.subscription!r} - at `$.subscription`",
        )
    return Done()


@METHODS.method("rpc.discover", Role.READ, "This interface, as OpenRPC", result=dict[str, Any])
def _discover(session: Session, params: NoParams) -> msgspec.Raw:
    return msgspec.Raw(_document())


@cache
def _document() -> bytes:
    return document(METHODS)


def _given(value: T | UnsetType) -> T | None:
    return None if value is UNSET else value
