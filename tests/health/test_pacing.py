import math
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.health.pacing import BEATS, PROBES_PER_S, Pace, look_pause_s, until_beat_s


@pytest.mark.parametrize(
    ("waited_s", "interval_ms", "pause_s"),
    [
        (0, 1000, 0.005),
        (2, 1000, 0.005),
        (4, 1000, 0.01),
        (60, 1000, 0.15),
        (400, 1000, 1),
        (4000, 1000, 1),
        (0, 2, 0.002),
        (-1, 1000, 0.005),
    ],
)
def test_the_pause_is_a_share_of_the_wait(
    waited_s: float, interval_ms: int, pause_s: float
) -> None:
    assert Pace().pause_s(waited_s, interval_ms) == pytest.approx(pause_s)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 60_000))
def test_it_never_shrinks_and_stays_within_its_bounds(a: float, b: float, interval: int) -> None:
    low, high = sorted((a, b))
    assert Pace().pause_s(low, interval) <= Pace().pause_s(high, interval) <= interval / 1000
    assert 0.0005 <= look_pause_s(low) <= look_pause_s(high) <= 0.01


def test_a_load_of_ten_minutes_takes_some_two_thousand_probes() -> None:
    waited, probes = 0.0, 0
    while waited < 600:
        waited += Pace().pause_s(waited, 5_000)
        probes += 1
    assert probes < 2_800


def test_a_crowd_shares_one_budget_which_who_is_alone_does_not_feel() -> None:
    pace = Pace()
    with ExitStack() as crowd:
        crowd.enter_context(pace.joined())
        assert pace.pause_s(0, 1_000) == 0.005
        for _ in range(199):
            crowd.enter_context(pace.joined())
        assert 200 / pace.pause_s(0, 1_000) == pytest.approx(PROBES_PER_S)
        assert pace.pause_s(0, 50) == 0.05, "the engine's own interval is kept"
    assert pace.pause_s(0, 1_000) == 0.005


@given(st.floats(0, 1e6), st.integers(1, BEATS), st.sampled_from([10.0, 0.5]))
def test_an_engine_waits_for_its_beat_and_never_longer_than_it_should(
    now: float, beats: int, period: float
) -> None:
    beat = period / BEATS
    pause = until_beat_s(beats, now, period)
    assert (beats - 1) * beat - 1e-6 <= pause <= beats * beat + 1e-6
    assert math.remainder(now + pause, beat) == pytest.approx(0, abs=1e-6)


@given(st.lists(st.floats(0, 0.4999), min_size=2), st.integers(0, 10_000))
def test_who_was_asked_at_one_beat_is_asked_together_the_next_time(
    late: list[float], beat: int
) -> None:
    """However long the answers took, as long as they came within the beat."""
    now = [beat * 0.5 + by for by in late]
    assert all(
        at + until_beat_s(BEATS, at, 10.0) == pytest.approx((beat + BEATS) * 0.5) for at in now
    )
