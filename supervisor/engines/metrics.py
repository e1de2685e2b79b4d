"""Five numbers that mean the same for every engine, read out of its Prometheus page.

Names differ between engines and between releases of one (MET-1), so each number has the names that
may carry it, in order; the first that is on the page counts. A page is read line by line: one that
no parser understands, or whose number is not finite, is left out alone (MET-2).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from supervisor.contracts.engine import CanonicalMetric, MetricMap

CANONICAL: tuple[CanonicalMetric, ...] = get_args(CanonicalMetric)

MEANS: frozenset[CanonicalMetric] = frozenset({"kvCacheUtilization"})
"""A share is averaged over its series (one for each data-parallel engine); all else is summed."""

RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
"""SGLang repeats the same number for each rank when asked for all schedulers' metrics."""
TOTALS: Mapping[str, str] = {"priority": ""}
"""SGLang with priorities has the total under an empty one, and its parts besides."""

MOST_SAMPLES = 4096
"""Of the five numbers together; what is beyond that on a page is counted as unreadable."""

METRICS_PATH = "/metrics"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a page says."""

    values: Mapping[CanonicalMetric, float | None]
    """``None``: the page does not carry it, or carries no number that means anything."""
    unsupported: tuple[CanonicalMetric, ...]
    """Those of which the page knows none of the names."""
    bad_lines: int = 0


@dataclass(slots=True)
class _Series:
    """One name on the page. It is there, though without a number, where only its type is told."""

    samples: list[Sample] = field(default_factory=list)


def is_exposition(page: str) -> bool:
    """Whether this can be a metrics page at all: HTML and JSON are what other pages hold."""
    return page.lstrip()[:1] not in ("<", "{", "[")


def read_metrics(names: MetricMap, page: str, *, whole: bool = True) -> Reading:
    """The canonical five from a page. What is behind the last line end is no line (yet)."""
    wanted = {name for candidates in names.values() for name in candidates}
    found: dict[str, _Series] = {}
    bad = read = 0
    lines = page.split("\n")
    if lines.pop() and whole:
        bad += 1
    parse = _parser()
    for line in lines:
        name, is_sample = _name_of(line)
        if name not in wanted:
            continue
        series = found.setdefault(name, _Series())
        if not is_sample:
            continue
        read += 1
        sample = parse(line) if read <= MOST_SAMPLES else None
        if sample is None:
            bad += 1
        else:
            series.samples.append(sample)
    values: dict[CanonicalMetric, float | None] = {}
    unsupported: list[CanonicalMetric] = []
    for metric in CANONICAL:
        present = next((found[name] for name in names.get(metric, ()) if name in found), None)
        if present is None:
            unsupported.append(metric)
        values[metric] = _combined(metric, present.samples) if present else None
    return Reading(values=values, unsupported=tuple(unsupported), bad_lines=bad)


def _name_of(line: str) -> tuple[str, bool]:
    """The metric that a line is about, and whether it is a sample and not just a ``# TYPE``."""
    if line.startswith("#"):
        words = line.split(None, 3)
        told = len(words) > 2 and words[0] == "#" and words[1] in ("TYPE", "HELP")
        return words[2] if told else "", False
    line = line.lstrip()
    end = min((at for sign in "{ \t" if (at := line.find(sign)) >= 0), default=len(line))
    return line[:end], True


def _parser() -> Callable[[str], Sample | None]:
    """A function that reads one line. The library is imported here: nothing needs it at a start."""
    from prometheus_client.parser import text_string_to_metric_families

    def parse(line: str) -> Sample | None:
        try:
            families = text_string_to_metric_families(line)
            (sample,) = (sample for family in families for sample in family.samples)
            value = float(sample.value)
        except (ValueError, ArithmeticError, LookupError):
            return None
        return (sample.labels, value) if math.isfinite(value) else None

    return parse


def _combined(metric: CanonicalMetric, samples: list[Sample]) -> float | None:
    values = list(_once_each(samples))
    if not values:
        return None
    total = sum(values)
    if metric in MEANS:
        total /= len(values)
    return total if math.isfinite(total) else None


def _once_each(samples: list[Sample]) -> Iterator[float]:
    """The numbers that may be added: no parts beside their total, no repetition by rank."""
    for label, total in TOTALS.items():
        if any(labels.get(label) == total for labels, _ in samples):
            samples = [it for it in samples if it[0].get(label, total) == total]
    chosen: dict[tuple[tuple[str, str], ...], tuple[tuple[str, ...], float]] = {}
    for labels, value in samples:
        key = tuple(sorted(pair for pair in labels.items() if pair[0] not in RANKS))
        rank = tuple(labels.get(name, "").zfill(4) for name in RANKS)
        if key not in chosen or rank < chosen[key][0]:
            chosen[key] = rank, value
    return (value for _, value in chosen.values())
