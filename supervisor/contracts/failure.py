"""The one way a launch fails: a union that only ``lifecycle`` makes, only ``failures`` renders."""

from typing import Literal

from msgspec import UNSET, UnsetType

from supervisor.contracts._base import Fact
from supervisor.contracts.engine import EngineId

SpawnReason = Literal[
    "binary-missing",
    "not-executable",
    "model-missing",
    "port-taken",
    "workdir-missing",
    "log-unwritable",
    "disk-full",
    "image",
    "denied",
]
"""Why nothing could be spawned, so that no client has to match a text."""


class Diagnosis(Fact, frozen=True, kw_only=True):
    """What an engine's own log says went wrong, from a table of known signatures."""

    code: str
    summary: str
    hint: str
    evidence: str


class UnsupportedFailure(Fact, frozen=True, kw_only=True, tag_field="kind", tag="unsupported"):
    """The host or the runtime cannot run this engine."""

    engine: EngineId
    reason: str


class AlreadyRunning(Fact, frozen=True, kw_only=True, tag_field="kind", tag="already-running"):
    """A record of this name holds it."""

    name: str
    detail: str | UnsetType = UNSET
    """What is in the way and what helps, where it is no instance that could be stopped."""


class NoCapacity(Fact, frozen=True, kw_only=True, tag_field="kind", tag="no-capacity"):
    """Fewer devices, or less of their memory, are free than the launch needs."""

    need: int
    free: int
    need_bytes: int | UnsetType = UNSET
    free_bytes: int | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    """Which devices, and who holds them."""


class InstallFailed(Fact, frozen=True, kw_only=True, tag_field="kind", tag="install-failed"):
    """No binary is there and none could be installed; ``detail`` names the command to try."""

    engine: EngineId
    detail: str


class SpawnFailed(Fact, frozen=True, kw_only=True, tag_field="kind", tag="spawn-failed"):
    """Nothing was started, or what was started could not become the engine."""

    detail: str
    reason: SpawnReason | UnsetType = UNSET
    diagnosis: Diagnosis | UnsetType = UNSET


class ExitedEarly(Fact, frozen=True, kw_only=True, tag_field="kind", tag="exited-early"):
    """The engine left before it was ready, whatever its exit code was."""

    exit_code: int | None
    """Null when a signal ended it, or when the code cannot be known; never a made-up 0."""
    signal: str | None
    """Such as ``SIGKILL``."""
    log_tail: str
    """The end of the engine's output, at most 8 KiB."""
    detail: str | UnsetType = UNSET
    """What a container engine says about the end, beside the code."""
    diagnosis: Diagnosis | UnsetType = UNSET


class UnhealthyTimeout(Fact, frozen=True, kw_only=True, tag_field="kind", tag="unhealthy-timeout"):
    """The deadline passed without a proof of readiness."""

    waited_ms: int
    log_tail: str
    last_probe: str | UnsetType = UNSET
    """What the last probe saw, in words."""
    diagnosis: Diagnosis | UnsetType = UNSET


class Cancelled(Fact, frozen=True, kw_only=True, tag_field="kind", tag="cancelled"):
    """A cancel or a stop came before readiness."""


LaunchFailure = (
    UnsupportedFailure
    | AlreadyRunning
    | NoCapacity
    | InstallFailed
    | SpawnFailed
    | ExitedEarly
    | UnhealthyTimeout
    | Cancelled
)
