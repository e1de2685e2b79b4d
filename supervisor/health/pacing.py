"""How long to wait between two looks: fast at first, and ever slower with the time waited.

A pause in proportion to the wait costs everyone the same small part of it: who waited 2 s learns
the end 5 ms late, who waited ten minutes 1.5 s late, and a load of any length takes some 400
probes for each time that the wait grows by the factor e.
"""

from collections.abc import Iterator
from contextlib import contextmanager

SHARE = 0.0025
PROBE_FLOOR_S = 0.005
LOOK_FLOOR_S = 0.0005
LOOK_CEILING_S = 0.01

RELAXED_S = 10.0
"""Between two probes of an engine that is ready."""
BEATS = 20
"""In that time. Engines that are ready are probed at a beat, several at once: a process that wakes
up for a single probe pays more for waking up than for the probe.
"""

PROBES_PER_S = 1_000
"""Of all loading engines together, which is some tenth of a core while they refuse."""


class Pace:
    """Shared by all who wait for an engine: two hundred of them ask no more than ten do."""

    def __init__(self) -> None:
        self._loading = 0

    @contextmanager
    def joined(self) -> Iterator[None]:
        """One more loads, for as long as this is entered."""
        self._loading += 1
        try:
            yield
        finally:
            self._loading -= 1

    def pause_s(self, waited_s: float, interval_ms: int) -> float:
        """Between two probes of one of them; never longer than the engine's own interval."""
        pause = max(SHARE * waited_s, PROBE_FLOOR_S, self._loading / PROBES_PER_S)
        return min(pause, interval_ms / 1000)


def until_beat_s(beats: int, now_s: float, period_s: float) -> float:
    """Until that many beats from now, the one that is under way counted as none."""
    beat_s = period_s / BEATS
    return (now_s // beat_s + beats) * beat_s - now_s


def look_pause_s(waited_s: float) -> float:
    """Between two looks at whether a connection was accepted, which cost one query each."""
    return min(max(SHARE * waited_s, LOOK_FLOOR_S), LOOK_CEILING_S)
