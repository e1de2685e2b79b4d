"""What a figure is: a few rows, each with our samples, those beside them, and the design's bounds.

A figure is a function that takes a stage and yields rows. Its file says why it measures the way it
does; the registry in ``bench.figures`` says which there are.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from bench.spread import Spread, spread
from bench.stage import Stage

Unit = Literal["ms", "µs", "/s", "%", "MB", ""]
"""Of every number in a row; the empty one counts things."""
Stat = Literal["p50", "p95", "p99", "most"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One promise of the design about one row."""

    stat: Stat
    limit: float
    beyond: str | None = None
    """The limit is on top of the same statistic of this control of the row."""
    times: float = 1
    """Of that control."""
    at_least: bool = False

    def holds(self, ours: Spread, beside: Mapping[str, Spread]) -> bool | None:
        """``None`` where the control is missing."""
        limit, value = self.limit, _of(ours, self.stat)
        if self.beyond is not None:
            if self.beyond not in beside:
                return None
            limit += self.times * _of(beside[self.beyond], self.stat)
        return value >= limit if self.at_least else value <= limit

    def text(self, unit: Unit) -> str:
        sign = "≥" if self.at_least else "≤"
        if self.beyond is None:
            return f"{self.stat} {sign} {self.limit:g} {unit}".rstrip()
        control = self.beyond if self.times == 1 else f"{self.times:g} x {self.beyond}"
        more = f" + {self.limit:g} {unit}".rstrip() if self.limit else ""
        return f"{self.stat} {sign} {control}{more}"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table, and of the JSON file."""

    what: str
    unit: Unit
    ours: Spread
    beside: dict[str, Spread]
    """Controls and peers by name, measured in the same run."""
    target: str
    """Empty for a row that only explains another one."""
    met: bool | None
    notes: tuple[str, ...]


class Skip(Exception):
    """Raised by a figure that cannot be measured here; its text says why."""


def row(
    what: str,
    unit: Unit,
    ours: Iterable[float],
    *bounds: Bound,
    beside: Mapping[str, Iterable[float] | None] | None = None,
    notes: Iterable[str] = (),
) -> Row:
    """Condense samples. Something that stood beside ours and has no samples is left out."""
    condensed = spread(ours)
    others = {name: spread(samples) for name, samples in (beside or {}).items() if samples}
    verdicts = [bound.holds(condensed, others) for bound in bounds]
    return Row(
        what=what,
        unit=unit,
        ours=condensed,
        beside=others,
        target=", ".join(bound.text(unit) for bound in bounds),
        met=None if not verdicts or None in verdicts else all(verdicts),
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A name to ask for it by, what it is, and how to have it."""

    name: str
    title: str
    measure: Callable[[Stage], Iterable[Row]]


def _of(spread_: Spread, stat: Stat) -> float:
    value: float = getattr(spread_, stat)
    return value
