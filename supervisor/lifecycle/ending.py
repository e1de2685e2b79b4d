"""Why an attempt comes down, and the manner of it. Pure: the facts come in, the decision goes out.

The facts are those of the record, of the ledger and of the present command; whoever looks at them,
in the middle of things or after a restart of the daemon, comes to the same end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from supervisor.contracts.failure import Cancelled, ExitedEarly, LaunchFailure
from supervisor.contracts.instance import Supervision

Verb = Literal["stop", "cancel", "restart"]


@dataclass(frozen=True, slots=True)
class Command:
    """What somebody asked of an instance."""

    kind: Verb
    grace_ms: int | None

    @property
    def final(self) -> bool:
        """Nothing is to follow."""
        return self.kind != "restart"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt comes down. Without a ``failure`` somebody asked for it, and nothing else."""

    reason: Literal["stop", "cancel", "restart", "unhealthy", "exit", "failure"]
    failure: LaunchFailure | None = None
    grace_ms: int | None = None
    again: bool = False
    """Another attempt is to follow, or may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What belongs to a bringing down beside the ending of the tree."""

    recorded: bool
    """The record says ``stopping`` before the first signal."""
    told: bool
    """As ``stopping`` and ``stopped``."""
    insists: bool
    """It never gives up. Else an engine that may not be touched goes on as it was."""


_STOP = Manner(recorded=True, told=True, insists=False)
_SWEEP = Manner(recorded=False, told=False, insists=True)
_UNWIND = Manner(recorded=True, told=False, insists=True)

MANNERS: Mapping[str, Manner] = MappingProxyType(
    {
        "stop": _STOP,
        "cancel": _STOP,
        "restart": _STOP,
        "unhealthy": _STOP,
        "exit": _SWEEP,
        "failure": _UNWIND,
    }
)
"""By reason: a ready engine is stopped; the rest of one that ended is swept up; what never got
ready is undone."""


def cause_of(
    supervision: Supervision,
    *,
    command: Command | None,
    last_words: ExitedEarly | None,
    failure: LaunchFailure | None,
) -> Cause | None:
    """Why the attempt has to come down now; ``None`` where nothing in the facts says so.

    ``last_words`` are of an exit after readiness that was told already: a command that comes later
    finds the engine gone, and decides only about what follows. ``failure`` is the one that an
    attempt that never got ready is being undone for: the first cause stays the cause.
    """
    if supervision.ready_at is None:
        stopping = supervision.intent == "stopping"
        cause = failure or (supervision.stopping_for if stopping else None)
        if cause is None and (command is not None or stopping):
            cause = Cancelled()
        return None if cause is None else unwinding(cause, command)
    if last_words is not None:
        return Cause("exit", last_words)
    if command is not None:
        return Cause(command.kind, None, command.grace_ms, again=command.kind == "restart")
    if supervision.stopping_for is not None:
        return Cause("unhealthy", supervision.stopping_for, again=True)
    return None


def unwinding(failure: LaunchFailure, command: Command | None) -> Cause:
    """The undoing of an attempt that never got ready."""
    if command is None:
        return Cause("failure", failure)
    return Cause("failure", failure, command.grace_ms, again=command.kind == "restart")


def to_resume(supervision: Supervision) -> Verb | None:
    """The command that an earlier daemon was obeying when it wrote the record."""
    if supervision.intent != "stopping":
        return None
    cause = supervision.stopping_for
    if supervision.stop_asked:
        return "stop"
    if cause is None or isinstance(cause, Cancelled):
        return "restart" if supervision.restart_after_stop else "stop"
    return None
