"""What is left of many samples: the middle, the tail and the ends."""

import math
import statistics
from collections.abc import Iterable

import msgspec


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``n`` samples. Where they are few, ``p99`` is the largest of them; ``n`` tells."""

    n: int
    p50: float
    p95: float
    p99: float
    least: float
    most: float


def spread(samples: Iterable[float]) -> Spread:
    """Raises ``ValueError`` for none: a figure without a sample is a defect of its bench."""
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("nothing was measured")
    return Spread(
        n=len(ordered),
        p50=_tidy(statistics.median(ordered)),
        p95=_tidy(_rank(ordered, 0.95)),
        p99=_tidy(_rank(ordered, 0.99)),
        least=_tidy(ordered[0]),
        most=_tidy(ordered[-1]),
    )


def _rank(ordered: list[float], share: float) -> float:
    """The nearest rank: a value that was measured, never one between two."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _tidy(value: float) -> float:
    """Four significant digits: more of them are noise, and make two runs hard to compare."""
    return float(f"{value:.4g}")
