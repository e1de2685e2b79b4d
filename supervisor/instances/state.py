"""Status is derived, never stored: what an instance *is* follows from its record, what the kernel
says about its tree, what the probes saw, and the time.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msgspec import UNSET

from supervisor.contracts.instance import (
    HealthView,
    InstanceRecord,
    InstanceState,
    Liveness,
    PinnedHandle,
)

UNHEALTHY_AFTER: Final = 3
"""Consecutive misses after ready that make an instance unhealthy, where its plan names no other."""


@dataclass(frozen=True, slots=True)
class Now:
    """One moment, on both clocks. A monotonic reading means something within its boot only."""

    boot_id: str
    monotonic_ns: int
    wall: datetime


def state_of(
    record: InstanceRecord, liveness: Liveness, health: HealthView, now: Now
) -> InstanceState:
    """The state of an instance. Total: every record and every observation has one.

    ``unknown`` liveness is judged as if the tree lived, by health and deadline: the engine may well
    be serving, and a probe that succeeds proves that it does. It is never ``exited``, for that
    word frees devices, and what cannot be known frees nothing.
    """
    if record.ref is None:
        return "reserving"
    if isinstance(record.ref, PinnedHandle):
        return "ready"
    if liveness == "gone":
        return "exited"
    if liveness == "leaderGone":
        return "unhealthy"
    if was_ready(record):
        return "ready" if health.misses < unhealthy_after(record) else "unhealthy"
    return "unhealthy" if deadline_passed(record, now) else "starting"


def was_ready(record: InstanceRecord) -> bool:
    """Whether readiness was ever proved. A fact in the record, which a restart of ours keeps."""
    return record.supervision is not UNSET and record.supervision.ready_at is not None


def unhealthy_after(record: InstanceRecord) -> int:
    """How many misses in a row this instance is granted, once it has been ready."""
    if record.supervision is UNSET or record.supervision.plan is None:
        return UNHEALTHY_AFTER
    named = record.supervision.plan.health.unhealthy_after
    return UNHEALTHY_AFTER if named is UNSET else named


def deadline_passed(record: InstanceRecord, now: Now) -> bool:
    """Whether the time to become ready is over. At the deadline itself it is.

    The monotonic deadline decides, so that no step of the wall clock can end a launch or stretch
    it. Only in another boot, or without one, does the wall time of the record count; one that
    cannot be read lies in no future that anybody promised, so it has passed.
    """
    supervision = record.supervision
    if (
        supervision is not UNSET
        and supervision.deadline_monotonic_ns is not None
        and supervision.boot_id == now.boot_id
    ):
        return now.monotonic_ns >= supervision.deadline_monotonic_ns
    try:
        deadline = datetime.fromisoformat(record.ready_deadline_at)
    except ValueError:
        return True
    if deadline.tzinfo is None:
        deadline = deadline.replace(tzinfo=UTC)
    return now.wall >= deadline
