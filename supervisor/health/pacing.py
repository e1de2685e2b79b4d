"""How long to wait between two looks: fast at first, and ever slower with the time waited.

A pause in proportion to the wait costs everyone the same small part of it: who waited 2 s learns
the end 5 ms late, who waited ten minutes 1.5 s late, and a load of any length takes some 400
probes for each time that the wait grows by the factor e.
"""

SHARE = 0.0025
PROBE_FLOOR_S = 0.005
LOOK_FLOOR_S = 0.0005
LOOK_CEILING_S = 0.01

RELAXED_S = 10.0
"""Between two probes of an engine that is ready."""


def probe_pause_s(waited_s: float, interval_ms: int) -> float:
    """Between two probes of an engine that loads; never longer than the engine's own interval."""
    return min(max(SHARE * waited_s, PROBE_FLOOR_S), interval_ms / 1000)


def look_pause_s(waited_s: float) -> float:
    """Between two looks at whether a connection was accepted, which cost one query each."""
    return min(max(SHARE * waited_s, LOOK_FLOOR_S), LOOK_CEILING_S)
