"""JSON-RPC 2.0 as the daemon speaks it: envelopes, error numbers, params and results."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from supervisor.contracts._base import Fact, Wire
from supervisor.contracts.engine import (
    CanonicalMetric,
    EngineId,
    EngineRuntimeKind,
    EngineSupport,
    LaunchPlan,
)
from supervisor.contracts.event import Cursor
from supervisor.contracts.host import DeviceId
from supervisor.contracts.instance import InstanceView
from supervisor.contracts.model import Fit

MAX_REQUEST_BYTES = 1 << 20
"""A request line longer than this ends its connection; replies have no limit."""
MAX_BATCH = 64

# JSON-RPC's own.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# Trouble with the daemon.
FORBIDDEN = -32001
UNAVAILABLE = -32002
OVERLOADED = -32003
CURSOR_EXPIRED = -32004
TOO_LARGE = -32005
# The domain's: 1001 to 1008 are the launch failures in the contract's order, append-only.
NO_SUCH_INSTANCE = 1100
NOT_OURS = 1101
INVALID_LAUNCH = 1102
NO_SUCH_RECIPE = 1103
PINNED = 1104
CANNOT_TELL = 1105
STOP_INCOMPLETE = 1106
WAIT_TIMED_OUT = 1107
STILL_ALIVE = 1108
NOT_DONE = 1109
HAS_ENDED = 1110

LONGEST_MS = 30 * 24 * 3_600_000
"""Thirty days: whoever names a longer time has mistyped it."""

RpcId = int | str | None

MAX_LOG_LINES = 10_000
MAX_FILTERS = 1_000
"""Kinds, and instances, that one subscription names."""
MAX_PINNED = 256
"""Devices of one pin."""
MAX_HOLDER = 1_024
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_MS)]


class Request(Wire, frozen=True, kw_only=True):
    """One call. Without ``id`` it is a notification and gets no reply."""

    jsonrpc: Literal["2.0"]
    method: str
    params: msgspec.Raw | UnsetType = UNSET
    id: RpcId | UnsetType = UNSET


class ErrorObject(Fact, frozen=True, kw_only=True):
    """Why a call failed; ``data`` is a ``LaunchFailure`` for codes 1001 to 1008."""

    code: int
    message: str
    data: msgspec.Raw | UnsetType = UNSET


class Response(Fact, frozen=True, kw_only=True):
    """The daemon's answer: ``result`` or ``error``."""

    id: RpcId
    jsonrpc: Literal["2.0"] = "2.0"
    result: msgspec.Raw | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET


class Notification(Fact, frozen=True, kw_only=True):
    """Sent by the daemon to a subscriber, and never answered."""

    method: str
    params: msgspec.Raw
    jsonrpc: Literal["2.0"] = "2.0"


class NoParams(Wire, frozen=True, kw_only=True):
    """For methods that take none."""


class NameParams(Wire, frozen=True, kw_only=True):
    name: str


class ListParams(Wire, frozen=True, kw_only=True):
    all: bool = False
    """Ended instances (their tombstones) as well."""


class StopParams(Wire, frozen=True, kw_only=True):
    """Names one instance, and with ``nonce`` one launch of it."""

    name: str
    nonce: str | UnsetType = UNSET
    grace_ms: Milliseconds | UnsetType = UNSET


class WaitParams(Wire, frozen=True, kw_only=True):
    name: str
    nonce: str | UnsetType = UNSET
    for_: Literal["ready", "exited"] = msgspec.field(name="for", default="ready")
    timeout_ms: Milliseconds | UnsetType = UNSET


class LogsParams(Wire, frozen=True, kw_only=True):
    name: str
    lines: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOG_LINES)] = 100
    follow: bool = False
    log: str | UnsetType = UNSET
    """With ``after``, for going on: what an earlier reply or notification said."""
    after: Annotated[int, msgspec.Meta(ge=0)] | UnsetType = UNSET
    """Its cursor: what comes behind it is told, instead of the last lines."""


class EventFilter(Wire, frozen=True, kw_only=True):
    """Which events: of these kinds, and of these instances. Left out, of all."""

    kinds: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_FILTERS)] | UnsetType = UNSET
    instances: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_FILTERS)] | UnsetType = UNSET


class SubscribeParams(EventFilter, frozen=True, kw_only=True):
    after: Cursor | UnsetType = UNSET
    """Events after this place come first; left out, only new ones come."""


class ReadEventsParams(EventFilter, frozen=True, kw_only=True):
    after: Cursor | UnsetType = UNSET
    """Left out, the newest event: then only what comes within ``waitMs`` is there to be read."""
    last: Annotated[int, msgspec.Meta(ge=0, le=1_000)] | UnsetType = UNSET
    """In place of ``after``: the newest so many that the daemon still has, without waiting."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 256
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 0
    """How long to wait for the first event, where there is none yet."""


class EventsRead(Fact, frozen=True, kw_only=True):
    """Oldest first; ``cursor`` is where to go on, and the old place where nothing came."""

    events: tuple[msgspec.Raw, ...]
    cursor: Cursor


class UnsubscribeParams(Wire, frozen=True, kw_only=True):
    subscription: str


class ReloadReply(Fact, frozen=True, kw_only=True):
    """What a reload changed, by the keys of the configuration file."""

    changed: tuple[str, ...]
    """In effect now: for what is launched, restarted or asked from here on."""
    at_restart: tuple[str, ...]
    """Different in the file, and read at the daemon's start only."""


class DrainParams(Wire, frozen=True, kw_only=True):
    grace_ms: Milliseconds | UnsetType = UNSET


class DrainReply(Fact, frozen=True, kw_only=True):
    """What a drain ended, and what it could not end."""

    stopped: tuple[str, ...]
    failed: dict[str, str]
    """Name to the reason why it is still there."""


class PinParams(Wire, frozen=True, kw_only=True):
    """A hold on devices with no process behind it, until it is released."""

    name: str
    holder: Annotated[str, msgspec.Meta(max_length=MAX_HOLDER)]
    """Who has the devices, for people."""
    engine: EngineId
    devices: Annotated[tuple[DeviceId, ...], msgspec.Meta(max_length=MAX_PINNED)]


class ReleaseParams(Wire, frozen=True, kw_only=True):
    name: str
    force: bool = False
    """Free the devices of a record that cannot be read although something of it may be alive."""


class ReleaseReply(Fact, frozen=True, kw_only=True):
    """Devices that the hold is known to have kept."""

    devices: tuple[DeviceId, ...]
    view: InstanceView | UnsetType = UNSET
    """Of a pin, as it ended. A record that could not be read has none."""


class WriterHealth(Fact, frozen=True, kw_only=True):
    """How the writing of lines goes: of the daemon's own log, or of the journal."""

    lost: int
    """Lines that could not be written since this daemon started."""
    error: str | None
    """What is in the way now; null where the last line was written."""


class SupervisorInfo(Fact, frozen=True, kw_only=True):
    """Who answers."""

    version: str
    node: str
    boot_id: str
    supervisor_id: str
    pid: int
    started_at: str
    counts: dict[str, int]
    """Instances by state."""
    paths: dict[str, str]
    log: WriterHealth | UnsetType = UNSET
    """The daemon's own log, on its stderr."""
    journal: WriterHealth | UnsetType = UNSET
    cgroup_root: str | None | UnsetType = UNSET
    """Below it each engine gets a cgroup of its own; null where none can be made."""


class EngineEntry(Fact, frozen=True, kw_only=True):
    id: EngineId
    support: EngineSupport
    runtimes: tuple[EngineRuntimeKind, ...]
    default_binary: str | None
    default_port: int | None
    image: str | None
    installed: str | None
    """The path of the binary a launch would use; null where none was found."""
    version: str | None = None
    """Of that binary, by its package's metadata; null where none tells."""


class EngineListing(Fact, frozen=True, kw_only=True):
    engines: tuple[EngineEntry, ...]


class PlanReply(Fact, frozen=True, kw_only=True):
    """What a launch with the same params would run; nothing was reserved or started."""

    plan: LaunchPlan
    dropped: tuple[str, ...]
    """Knobs the engine has no word for."""
    notes: tuple[str, ...]
    fit: Fit
    """Whether the model is going to fit the devices' memory, by estimate."""
    refusal: str | None
    """Why the launch would be refused right now; null where it would not."""


class CanonicalMetrics(Fact, frozen=True, kw_only=True):
    """An engine's load in numbers that mean the same for every engine; null where unknown."""

    requests_running: float | None
    requests_waiting: float | None
    kv_cache_utilization: float | None
    """0 to 1; averaged over data-parallel engines."""
    prompt_tokens_total: float | None
    generation_tokens_total: float | None


class MetricsReply(Fact, frozen=True, kw_only=True):
    """What an engine says of its load at this moment."""

    name: str
    engine: EngineId
    metrics: CanonicalMetrics
    unsupported: tuple[CanonicalMetric, ...]
    """Those that this engine, as it runs, never tells; other nulls may come to be known."""
    bad_lines: int = 0
    """Lines of the page that could not be read; the others were."""
    unavailable: str | UnsetType = UNSET
    """Why nothing could be asked just now."""


class DetectedEngine(Fact, frozen=True, kw_only=True):
    """A process of this host that serves with an engine, whoever started it."""

    pid: int
    engine: EngineId
    model: str | None
    """As its command line names it; null where that does not say."""
    served_model_name: str | None
    port: int | None
    """The one that it was told to listen on, or the engine's default."""
    listening: tuple[int, ...] | None
    """The TCP ports that it does listen on; null where that may not be looked at."""
    masks: dict[str, str] | None
    """Variables that show it only some devices; null where its environment may not be read."""
    instance: str | None
    """Ours: the name of the record that it belongs to."""
    devices: tuple[DeviceId, ...] | UnsetType = UNSET
    """Of ours: what the record holds."""
    container: str | UnsetType = UNSET
    """The id of the container that it runs in."""
    user: str | UnsetType = UNSET


class DetectReply(Fact, frozen=True, kw_only=True):
    """The engines among the processes of this host."""

    engines: tuple[DetectedEngine, ...]
    unreadable: int
    """Processes that may not be looked at, and that could be engines for all we know."""


class MetricsText(Fact, frozen=True, kw_only=True):
    """The supervisor's own metrics, in Prometheus' text format."""

    text: str


class Unreadable(Fact, frozen=True, kw_only=True):
    """A record that cannot be read, or is lost, whose engine is not known to be gone."""

    name: str
    """What ``instance.release`` takes."""
    path: str
    """The file in quarantine, else where what is left of it lives."""
    reason: str
    devices: tuple[DeviceId, ...] | None
    """That go to nobody; null where nothing tells which, and so all that nobody claims."""
    pids: tuple[int, ...]
    """Living processes that show its marks."""


class InstanceListing(Fact, frozen=True, kw_only=True):
    instances: tuple[InstanceView, ...]
    cursor: Cursor
    unreadable: tuple[Unreadable, ...] | UnsetType = UNSET
    """Left out where there are none."""


class InstanceDetail(InstanceView, frozen=True, kw_only=True):
    cursor: Cursor


class LogLines(Fact, frozen=True, kw_only=True):
    lines: tuple[str, ...]
    cursor: int
    """The place behind the last line, in bytes of all that was ever written to this log."""
    log: str | UnsetType = UNSET
    """Which log this is a place in: each attempt of an instance has its own."""
    subscription: str | UnsetType = UNSET


class LogNotice(Fact, frozen=True, kw_only=True):
    """Params of a ``log`` notification."""

    subscription: str
    lines: tuple[str, ...]
    cursor: int
    log: str | UnsetType = UNSET


class Subscription(Fact, frozen=True, kw_only=True):
    subscription: str
    cursor: Cursor
    """The newest event when the subscription began: a reader that saw it has caught up."""


class EventNotice(Fact, frozen=True, kw_only=True):
    """Params of an ``event`` notification; the event is the flat wire object."""

    subscription: str
    event: msgspec.Raw


class SubscriptionEnded(Fact, frozen=True, kw_only=True):
    """Params of a ``subscription.ended`` notification: nothing more will come of it."""

    subscription: str
    error: ErrorObject | UnsetType = UNSET
    """Left out where there is simply nothing more to say, as in the log of an ended engine."""


class ExpiredCursor(Fact, frozen=True, kw_only=True):
    """The ``data`` of ``CURSOR_EXPIRED``: a place that is valid, which is the newest."""

    cursor: Cursor


class Done(Fact, frozen=True, kw_only=True):
    """The reply of a call that has nothing else to say."""

    ok: bool = True
