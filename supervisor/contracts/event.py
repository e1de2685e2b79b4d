"""Every event there is: one struct a kind, told apart on the wire by ``kind``.

Lifecycle builds a *body*; the journal numbers it. On the wire the two are one flat object:
``{seq, epoch, at, node, kind, instance?, nonce?, ...}``.
"""

from typing import Literal

from msgspec import UNSET, UnsetType, field

from supervisor.contracts._base import Fact
from supervisor.contracts.failure import Diagnosis, LaunchFailure
from supervisor.contracts.host import DeviceId, NodeId
from supervisor.contracts.instance import HandleReference


class Stamp(Fact, frozen=True, kw_only=True):
    """What the journal adds to an event's body."""

    seq: int
    """Rises by one from event to event, over restarts of the daemon too."""
    epoch: str
    """Changes only when the numbering had to start again."""
    at: str
    """RFC 3339 UTC."""
    node: NodeId


class Cursor(Fact, frozen=True, kw_only=True):
    """A place in the event stream: the last event that was seen."""

    epoch: str
    seq: int


class EventBody(Fact, frozen=True, kw_only=True, tag_field="kind"):
    """The common part of all events."""

    instance: str | UnsetType = UNSET
    nonce: str | UnsetType = UNSET


class MemberProcess(Fact, frozen=True, kw_only=True):
    """A process of an instance's tree, as events name it."""

    pid: int
    name: str


class SupervisorStarted(EventBody, frozen=True, kw_only=True, tag="supervisor-started"):
    version: str
    boot_id: str
    supervisor_id: str
    found: int
    """Records taken up from the state directory; each is told about on its own."""


class SupervisorStopping(EventBody, frozen=True, kw_only=True, tag="supervisor-stopping"):
    reason: str
    detached: int
    """Engines that are left running."""


class ConfigReloaded(EventBody, frozen=True, kw_only=True, tag="config-reloaded"):
    changed: tuple[str, ...]


class Reserved(EventBody, frozen=True, kw_only=True, tag="reserved"):
    """Name, devices and port are held; nothing runs yet."""

    engine: str
    devices: tuple[DeviceId, ...]
    port: int


class RedactedPlan(Fact, frozen=True, kw_only=True):
    """A launch plan fit for other eyes: env by name only, secrets masked."""

    kind: str
    argv: tuple[str, ...]
    env: tuple[str, ...]
    devices: tuple[DeviceId, ...]
    image: str | UnsetType = UNSET
    workdir: str | UnsetType = UNSET


class Launching(EventBody, frozen=True, kw_only=True, tag="launching"):
    plan: RedactedPlan
    attempt: int
    deadline_ms: int


class Spawned(EventBody, frozen=True, kw_only=True, tag="spawned"):
    """The handle is on disk and the engine's own program runs."""

    ref: HandleReference
    log_path: str


class Phase(EventBody, frozen=True, kw_only=True, tag="phase"):
    phase: str
    detail: str | UnsetType = UNSET


class Ready(EventBody, frozen=True, kw_only=True, tag="ready"):
    port: int
    waited_ms: int


class Unhealthy(EventBody, frozen=True, kw_only=True, tag="unhealthy"):
    reason: str
    misses: int


class Recovered(EventBody, frozen=True, kw_only=True, tag="recovered"):
    unhealthy_ms: int


class LaunchFailed(EventBody, frozen=True, kw_only=True, tag="launch-failed"):
    """An attempt that ended without ``ready``; ``failure`` equals the reply's ``data``."""

    failure: LaunchFailure
    attempt: int
    log_path: str | None
    truncated: bool = False
    """The failure's log tail was cut to fit an event line."""


class Stopping(EventBody, frozen=True, kw_only=True, tag="stopping"):
    grace_ms: int
    reason: str


class Stopped(EventBody, frozen=True, kw_only=True, tag="stopped"):
    """The tree is gone and its devices are free."""

    devices: tuple[DeviceId, ...]
    exit_code: int | None
    signal: str | None
    killed: tuple[MemberProcess, ...]
    """Members that had to be killed."""
    device_memory: Literal["returned", "left"] | UnsetType = UNSET
    """Whether the driver saw the memory of all its processes come back; absent where it does not
    tell. What is left does not hold the devices, and is a warning."""


class StopIncomplete(EventBody, frozen=True, kw_only=True, tag="stop-incomplete"):
    """Something survived even KILL; the devices stay held."""

    survivors: tuple[MemberProcess, ...]
    """Empty where the tree was told to end, and who is left of it cannot be known."""
    devices: tuple[DeviceId, ...]


class Exited(EventBody, frozen=True, kw_only=True, tag="exited"):
    """The main process of an engine that had been ready is dead."""

    exit_code: int | None
    signal: str | None
    log_tail: str
    uptime_ms: int
    diagnosis: Diagnosis | UnsetType = UNSET
    """Such as: vLLM's 0 is no clean end, for its engine core died."""
    truncated: bool = False


RestartReason = Literal["back-off", "breaker", "requested", "unhealthy", "boot"]


class Restarting(EventBody, frozen=True, kw_only=True, tag="restarting"):
    """The instance waits with its name, port and devices, and will try again."""

    attempt: int
    """The next one's number."""
    retry_at: str
    reason: RestartReason


class GaveUp(EventBody, frozen=True, kw_only=True, tag="gave-up"):
    """No further attempt will be made; the devices are free."""

    attempts: int
    failure: LaunchFailure
    first_failure: LaunchFailure
    reason: str
    truncated: bool = False
    """The failures' log tails were cut so that both fit an event line."""


class Adopted(EventBody, frozen=True, kw_only=True, tag="adopted"):
    """Found at start, proved to be ours and alive."""

    ref: HandleReference
    devices: tuple[DeviceId, ...]
    port: int


class Reaped(EventBody, frozen=True, kw_only=True, tag="reaped"):
    """Found at start, and dead meanwhile."""

    exit_code: int | None
    signal: str | None
    devices: tuple[DeviceId, ...]


class Swept(EventBody, frozen=True, kw_only=True, tag="swept"):
    """The main process was gone; these members of its tree were ended after it."""

    members: tuple[MemberProcess, ...]
    devices: tuple[DeviceId, ...]


class RecordQuarantined(EventBody, frozen=True, kw_only=True, tag="record-quarantined"):
    path: str
    reason: str


class DeviceLost(EventBody, frozen=True, kw_only=True, tag="device-lost"):
    device: DeviceId
    reason: str


class DeviceFound(EventBody, frozen=True, kw_only=True, tag="device-found"):
    device: DeviceId


class MemberLost(EventBody, frozen=True, kw_only=True, tag="member-lost"):
    member: MemberProcess


class PortChanged(EventBody, frozen=True, kw_only=True, tag="port-changed"):
    """A stranger took the pool port before the engine bound it."""

    from_: int = field(name="from")
    to: int


class TaskCrashed(EventBody, frozen=True, kw_only=True, tag="task-crashed"):
    """A defect of ours in one instance's task; the task was started again from its record."""

    task: str
    error: str


WarningCode = Literal[
    "port-foreign",
    "proof-denied",
    "identity-unknown",
    "engine-lost",
    "record-newer",
    "record-write-failed",
    "record-missing",
    "moved-aside",
    "log-lost",
    "log-unbounded",
    "knob-dropped",
    "config-rejected",
    "fit",
    "probe-failed",
    "memory-left",
    "device-withdrawn",
    "released-alive",
    "tombstone-pruned",
    "key-file-unreadable",
]


class Warning_(EventBody, frozen=True, kw_only=True, tag="warning"):
    code: WarningCode
    detail: str


class Pinned(EventBody, frozen=True, kw_only=True, tag="pinned"):
    holder: str
    devices: tuple[DeviceId, ...]


class Released(EventBody, frozen=True, kw_only=True, tag="released"):
    devices: tuple[DeviceId, ...]


class InstallProgress(EventBody, frozen=True, kw_only=True, tag="install-progress"):
    engine: str
    stage: str
    detail: str | UnsetType = UNSET


class Installed(EventBody, frozen=True, kw_only=True, tag="installed"):
    engine: str
    version: str


class InstallFailedEvent(EventBody, frozen=True, kw_only=True, tag="install-failed"):
    engine: str
    detail: str


class JournalGap(EventBody, frozen=True, kw_only=True, tag="journal-gap"):
    """Numbers that were given out while the disk took no lines, or whose lines were removed."""

    from_: int = field(name="from")
    to: int


class NodeJoined(EventBody, frozen=True, kw_only=True, tag="node-joined"):
    joined: NodeId


class NodeLost(EventBody, frozen=True, kw_only=True, tag="node-lost"):
    lost: NodeId
    reason: str


Event = (
    SupervisorStarted
    | SupervisorStopping
    | ConfigReloaded
    | Reserved
    | Launching
    | Spawned
    | Phase
    | Ready
    | Unhealthy
    | Recovered
    | LaunchFailed
    | Stopping
    | Stopped
    | StopIncomplete
    | Exited
    | Restarting
    | GaveUp
    | Adopted
    | Reaped
    | Swept
    | RecordQuarantined
    | DeviceLost
    | DeviceFound
    | MemberLost
    | PortChanged
    | TaskCrashed
    | Warning_
    | Pinned
    | Released
    | InstallProgress
    | Installed
    | InstallFailedEvent
    | JournalGap
    | NodeJoined
    | NodeLost
)
