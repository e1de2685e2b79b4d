"""Instances and tombstones as the wire shows them."""

from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.instance import (
    HealthView,
    InstanceRecord,
    InstanceView,
    Liveness,
    Supervision,
    Tombstone,
)
from supervisor.instances.state import Now, state_of, was_ready

NO_PROBES = HealthView(misses=0, last=None)


def living_view(
    record: InstanceRecord, liveness: Liveness, health: HealthView, now: Now
) -> InstanceView:
    """A record that holds its lease. What it says of itself is derived here and now."""
    supervision = _supervision(record)
    return InstanceView(
        record=replace(record, supervision=UNSET),
        state=state_of(record, liveness, health, now),
        health=health,
        intent=supervision.intent if supervision else None,
        attempt=supervision.attempt if supervision else 1,
        failure=supervision.last_failure if supervision and not was_ready(record) else None,
        first_failure=supervision.first_failure if supervision else None,
        exit=None,
        log_path=supervision.log_path if supervision else None,
        retry_at=supervision.retry_at if supervision else None,
        stop_asked=supervision.stop_asked if supervision else False,
    )


def tombstone_view(tombstone: Tombstone) -> InstanceView:
    """An ended instance: it holds nothing, and nothing can change about it."""
    record, supervision = tombstone.record, _supervision(tombstone.record)
    return InstanceView(
        record=replace(record, supervision=UNSET),
        state="exited",
        health=NO_PROBES,
        intent=None,
        attempt=supervision.attempt if supervision else 1,
        failure=tombstone.failure,
        first_failure=supervision.first_failure if supervision else None,
        exit=tombstone.exit,
        log_path=supervision.log_path if supervision else None,
        stop_asked=supervision.stop_asked if supervision else False,
    )


def _supervision(record: InstanceRecord) -> Supervision | None:
    return record.supervision or None
