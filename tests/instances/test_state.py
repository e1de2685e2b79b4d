from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contracts.instance import (
    DockerHandle,
    HealthView,
    InstanceRecord,
    InstanceState,
    Liveness,
    PinnedHandle,
    RemoteHandle,
)
from supervisor.instances.state import Now, state_of
from tests.contracts.strategies import values
from tests.instances.builders import BOOT, a_plan, a_record

WALL = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)  # the builder's records: five minutes to go
NOW = Now(boot_id=BOOT, monotonic_ns=1000, wall=WALL)
LATE = Now(boot_id=BOOT, monotonic_ns=1000, wall=WALL + timedelta(hours=1))
OTHER_BOOT = "99999999-2222-3333-4444-555555555555"
READY: dict[str, Any] = {"ready_at": "2026-01-01T00:01:00.000Z"}
LIVENESSES: tuple[Liveness, ...] = get_args(Liveness)


def seen(misses: int) -> HealthView:
    return HealthView(misses=misses, last=None)


@pytest.mark.parametrize(
    ("changes", "liveness", "misses", "state"),
    [
        # No handle, whatever else is said.
        ({"ref": None}, "unknown", 0, "reserving"),
        ({"ref": None}, "gone", 9, "reserving"),
        ({"ref": None, **READY}, "alive", 0, "reserving"),
        # A hold with no process.
        ({"ref": PinnedHandle(holder="speech")}, "alive", 0, "ready"),
        ({"ref": PinnedHandle(holder="speech")}, "gone", 9, "ready"),
        # The tree.
        ({}, "gone", 0, "exited"),
        (READY, "gone", 0, "exited"),
        ({"ref": DockerHandle(container="c")}, "gone", 0, "exited"),
        ({}, "leaderGone", 0, "unhealthy"),
        (READY, "leaderGone", 0, "unhealthy"),
        # Ever ready: the misses.
        (READY, "alive", 0, "ready"),
        (READY, "alive", 2, "ready"),
        (READY, "alive", 3, "unhealthy"),
        (READY | {"plan": a_plan(unhealthy_after=5)}, "alive", 4, "ready"),
        (READY | {"plan": a_plan(unhealthy_after=5)}, "alive", 5, "unhealthy"),
        (READY | {"plan": a_plan()}, "alive", 3, "unhealthy"),
        (READY | {"deadline_monotonic_ns": 1}, "alive", 0, "ready"),
        # Never ready: the deadline.
        ({"deadline_monotonic_ns": 1001}, "alive", 0, "starting"),
        ({"deadline_monotonic_ns": 1001}, "alive", 99, "starting"),
        ({"deadline_monotonic_ns": 1000}, "alive", 0, "unhealthy"),
        ({}, "alive", 0, "starting"),
        # Unknown: by health and deadline, as if it lived.
        (READY, "unknown", 2, "ready"),
        (READY, "unknown", 3, "unhealthy"),
        ({"deadline_monotonic_ns": 1001}, "unknown", 0, "starting"),
        ({"deadline_monotonic_ns": 1000}, "unknown", 0, "unhealthy"),
        ({"ref": RemoteHandle(node_id="b", name="x"), **READY}, "unknown", 0, "ready"),
    ],
)
def test_every_branch(
    changes: dict[str, Any], liveness: Liveness, misses: int, state: InstanceState
) -> None:
    assert state_of(a_record(**changes), liveness, seen(misses), NOW) == state


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1), timedelta(days=1)])
@pytest.mark.parametrize(("at", "state"), [(999, "starting"), (1000, "unhealthy")])
def test_the_wall_clock_decides_nothing_within_a_boot(
    step: timedelta, at: int, state: InstanceState
) -> None:
    record = a_record(deadline_monotonic_ns=1000)
    now = Now(boot_id=BOOT, monotonic_ns=at, wall=WALL + step)
    assert state_of(record, "alive", seen(0), now) == state


@pytest.mark.parametrize(
    "record",
    [
        a_record(deadline_monotonic_ns=1 << 60, boot_id=OTHER_BOOT),
        a_record(deadline_monotonic_ns=1, boot_id=OTHER_BOOT),
        a_record(),
        a_record(bare=True),
    ],
    ids=["another boot", "another boot, earlier", "no monotonic deadline", "the seed's record"],
)
def test_the_wall_clock_decides_where_nothing_else_can(record: InstanceRecord) -> None:
    assert state_of(record, "alive", seen(0), NOW) == "starting"
    assert state_of(record, "alive", seen(0), LATE) == "unhealthy"


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01T00:00:00Z", "2026-01-01T23:59:60Z"])
def test_a_deadline_that_cannot_be_read_has_passed(text: str) -> None:
    record = a_record(ready_deadline_at=text)
    assert state_of(record, "alive", seen(0), NOW) == "unhealthy"


def test_a_deadline_without_a_zone_is_utc() -> None:
    record = a_record(ready_deadline_at="2026-01-01T00:05:01")
    assert state_of(record, "alive", seen(0), NOW) == "starting"


records = values(InstanceRecord)
deadlines = st.datetimes(timezones=st.timezones()).map(datetime.isoformat)
moments = st.builds(
    Now,
    st.sampled_from([BOOT, OTHER_BOOT]),
    st.integers(min_value=0),
    st.datetimes(timezones=st.just(UTC)),
)
livenesses = st.sampled_from(LIVENESSES)


@given(records, livenesses, st.builds(seen, st.integers(0, 9)), moments)
def test_it_is_total_and_only_gone_is_exited(
    record: InstanceRecord, liveness: Liveness, health: HealthView, now: Now
) -> None:
    state = state_of(record, liveness, health, now)
    assert state in get_args(InstanceState)
    if state == "exited":
        assert liveness == "gone"
    assert (state == "reserving") == (record.ref is None)
    if isinstance(record.ref, PinnedHandle):
        assert state == "ready"


@given(deadlines, livenesses, moments)
def test_any_deadline_of_any_zone_can_be_judged(
    deadline: str, liveness: Liveness, now: Now
) -> None:
    record = a_record(ready_deadline_at=deadline)
    assert state_of(record, liveness, seen(0), now) in get_args(InstanceState)


@given(st.integers(0, 9), st.integers(0, 9), livenesses)
def test_more_misses_never_make_it_healthier(few: int, more: int, liveness: Liveness) -> None:
    few, more = sorted((few, more))
    record = a_record(**READY)
    if state_of(record, liveness, seen(few), NOW) == "unhealthy":
        assert state_of(record, liveness, seen(more), NOW) == "unhealthy"


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_what_never_became_ready_in_time_stays_so(deadline: int, then: int, later: int) -> None:
    then, later = sorted((then, later))
    record = a_record(deadline_monotonic_ns=deadline)
    first = state_of(record, "alive", seen(0), Now(BOOT, then, WALL))
    assert first == ("starting" if then < deadline else "unhealthy")
    if first == "unhealthy":
        assert state_of(record, "alive", seen(0), Now(BOOT, later, WALL)) == "unhealthy"
