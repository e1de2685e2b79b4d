"""The instance record, which is the lease, and the view of an instance that the wire shows."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from supervisor.contracts._base import Fact, Wire
from supervisor.contracts.engine import (
    EngineId,
    EngineRuntimeKind,
    LaunchPlan,
    ServingOptions,
)
from supervisor.contracts.failure import Diagnosis, LaunchFailure
from supervisor.contracts.host import DeviceId, NodeId

RECORD_SCHEMA = 1
"""Version of ``Supervision``; a record of a newer one is read and never written."""

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
"""What an instance may be called: safe as a file name, a container name and a unit name."""


class ProcessHandle(Fact, frozen=True, kw_only=True, tag_field="kind", tag="process"):
    """A process of this host, told from every later bearer of its pid."""

    pid: int
    start_token: str | None
    """``"<boot id>:<field 22 of /proc/PID/stat>"``; null proves nothing."""
    pidfd_inode: int | UnsetType = UNSET
    """Unique within a boot, where the kernel has pidfs (6.9 and newer)."""


class DockerHandle(Fact, frozen=True, kw_only=True, tag_field="kind", tag="docker"):
    """A container, by its id."""

    container: str
    daemon: str | UnsetType = UNSET
    """Which container engine has it: that another one does not know it proves nothing."""


class RemoteHandle(Fact, frozen=True, kw_only=True, tag_field="kind", tag="remote"):
    """An instance of another host."""

    node_id: NodeId
    name: str


class PinnedHandle(Fact, frozen=True, kw_only=True, tag_field="kind", tag="pinned"):
    """A hold on devices with no process behind it, until it is released."""

    holder: str


HandleReference = ProcessHandle | DockerHandle | RemoteHandle | PinnedHandle

Intent = Literal["launching", "running", "waiting", "stopping"]
"""What the daemon was about to do when it wrote the record: what a restart goes by."""

RestartPolicy = Literal["never", "on-failure", "always"]

InstanceState = Literal["reserving", "starting", "ready", "unhealthy", "exited"]
"""Derived by ``state_of``, never stored."""


Liveness = Literal["alive", "leaderGone", "gone", "unknown"]
"""Of the whole tree: ``leaderGone`` means that members outlive the main process.

``unknown`` is an answer of its own: it frees no lease and lets nothing be signalled.
"""

Ownership = Literal["ours", "foreign", "unknown"]
"""Whether something (a socket, a process) belongs to an instance's tree, or nobody can tell."""


class LaunchParams(Wire, frozen=True, kw_only=True):
    """What a client asks for. Members left out fall back to the recipe, then to the engine."""

    name: str
    engine: EngineId | UnsetType = UNSET
    model_path: str | UnsetType = UNSET
    recipe: str | UnsetType = UNSET
    runtime: EngineRuntimeKind | UnsetType = UNSET
    device_count: int | UnsetType = UNSET
    devices: tuple[DeviceId, ...] | UnsetType = UNSET
    exclusive: bool | UnsetType = UNSET
    memory_bytes: int | UnsetType = UNSET
    """A claim on each of the devices, for sharing them."""
    port: int | UnsetType = UNSET
    """An explicit port is never changed; left out, one of the pool is taken."""
    served_model_name: str | UnsetType = UNSET
    options: ServingOptions | UnsetType = UNSET
    extra_args: tuple[str, ...] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    docker_image: str | None | UnsetType = UNSET
    binary: str | UnsetType = UNSET
    command: tuple[str, ...] | UnsetType = UNSET
    """The argv to run, verbatim, in place of the planned one."""
    restart: RestartPolicy | UnsetType = UNSET
    ready_deadline_ms: int | UnsetType = UNSET
    deep_check_ms: int | UnsetType = UNSET
    """Once ready, make the engine do a little of its real work this often; a failure is a miss."""
    stall_ms: int | UnsetType = UNSET
    """With it the deadline moves: never nearer than this to the last progress in the log."""
    ready_cap_ms: int | UnsetType = UNSET
    """Where a moving deadline ends, counted from the start; left out, four times the deadline."""
    install: Literal["missing"] | UnsetType = UNSET
    wait: bool | UnsetType = UNSET
    """False returns at the reservation (default true)."""


class ExitInfo(Fact, frozen=True, kw_only=True):
    """How an engine's main process ended. Both null: it ended and nobody can know how."""

    exit_code: int | None
    signal: str | None
    at: str
    diagnosis: Diagnosis | UnsetType = UNSET
    """Of an exit that nobody asked for, after readiness; one before it is a failure."""


class Supervision(Fact, frozen=True, kw_only=True):
    """What a restart of the daemon needs beyond the seed's record, in one optional member."""

    schema_version: int
    boot_id: str
    supervisor_id: str
    """Of the state directory that owns this record."""
    launch: LaunchParams
    intent: Intent
    attempt: int
    exclusive: bool
    bind_host: str
    """The address the engine listens on."""
    log_path: str | None = None
    cgroup: str | None = None
    """The directory of the cgroup v2 that was made for this attempt; null where none was."""
    memory_bytes: int | None = None
    wholes: dict[DeviceId, DeviceId] = msgspec.field(default_factory=dict)
    """Of the devices that are slices (MIG), the whole each is of, for when no probe sees them."""
    plan: LaunchPlan | None = None
    ready_at: str | None = None
    """A fact, not a state: the moment readiness was first proved."""
    ready_monotonic_ns: int | None = None
    deadline_monotonic_ns: int | None = None
    """On ``CLOCK_MONOTONIC`` of ``boot_id``; decisions use this, people read the wall times."""
    launched_monotonic_ns: int | None = None
    log_position: int | None = None
    """Up to where the log was read for progress; kept where the deadline moves with it."""
    stop_asked: bool = False
    """With intent ``stopping``: somebody wants it to end, whatever it was being stopped for."""
    restart_after_stop: bool = False
    """With intent ``stopping``: the stop is the first half of a restart."""
    stopping_for: LaunchFailure | None = None
    """With intent ``stopping``: the failure that the taking down follows; null where it was asked
    for."""
    grace_monotonic_ns: int | None = None
    """With intent ``stopping``: when the engine's time to leave by itself is over."""
    retry_at: str | None = None
    """With intent ``waiting``: when the next attempt begins, for people."""
    retry_monotonic_ns: int | None = None
    first_failure: LaunchFailure | None = None
    """Of the attempts since the last stable period."""
    last_failure: LaunchFailure | None = None


class InstanceRecord(Fact, frozen=True, kw_only=True):
    """The single truth about a deployment: one file, written whole. ``devices`` is the lease."""

    name: str
    node_id: NodeId
    engine: EngineId
    recipe_id: str
    runtime: EngineRuntimeKind
    ref: HandleReference | None
    """Null while it is a reservation and nothing runs."""
    port: int
    devices: tuple[DeviceId, ...]
    nonce: str
    """Proves that we started it; nothing is signalled whose nonce differs."""
    started_at: str
    ready_deadline_at: str
    supervision: Supervision | UnsetType = UNSET


class Tombstone(Fact, frozen=True, kw_only=True):
    """What is left of an ended instance: it holds nothing and answers questions."""

    record: InstanceRecord
    ended_at: str
    failure: LaunchFailure | None
    exit: ExitInfo | None


class HealthView(Fact, frozen=True, kw_only=True):
    """What the probes have seen, for people and for ``state_of``."""

    misses: int
    """Consecutive ones since the last success."""
    last: str | None
    """The latest probe in words; null before the first."""


class InstanceView(Fact, frozen=True, kw_only=True):
    """An instance as the wire shows it. ``record`` comes without its ``supervision``."""

    record: InstanceRecord
    state: InstanceState
    health: HealthView
    intent: Intent | None
    """Null once it has ended, and of a pin, of which nothing is intended."""
    attempt: int
    failure: LaunchFailure | None
    """Why it is not ready, or why it ended. Null once it is ready (again), or was stopped."""
    first_failure: LaunchFailure | None
    """Of the attempts since the last stable period."""
    exit: ExitInfo | None
    log_path: str | None
    retry_at: str | None = None
    """With intent ``waiting``: when the next attempt begins, RFC 3339 UTC."""
    stop_asked: bool = False
    """Somebody told it to end, so that its end is no failure."""
