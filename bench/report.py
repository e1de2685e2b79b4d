"""The outcome of a run: a JSON file for machines, an aligned table for people."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.figure import Row, Unit
from bench.spread import Spread
from bench.stage import Scale

RESULTS = Path(__file__).with_name("results")
HEAD = ("figure", "n", "p50", "p95", "p99", "beside it (p50)", "target", "")
_MARKS = {True: "met", False: "MISSED", None: ""}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of one figure. Without rows ``problem`` says why: it was skipped, or it failed."""

    name: str
    title: str
    seconds: float
    load: float
    """Of the last minute before it, other figures included."""
    rows: tuple[Row, ...]
    problem: str | None = None
    failed: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole file."""

    at: str
    scale: Scale
    machine: dict[str, object]
    load: float
    """Of the minute before the run, and so not our own."""
    compiled_engine: bool
    peers_missing: str | None
    seconds: float
    figures: tuple[Outcome, ...]

    @property
    def failed(self) -> bool:
        """A figure broke. One that misses its target is a finding, not a failure of the bench."""
        return any(outcome.failed for outcome in self.figures)

    @property
    def busy(self) -> bool:
        """Others wanted much of the machine, and all sides competed with them."""
        return not self.machine["realtime"] and self.load > (os.cpu_count() or 1) / 2


def now() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def write(report: Report, folder: Path = RESULTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{report.at}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return path


def table(outcomes: Iterable[Outcome]) -> str:
    lines: list[tuple[str, ...]] = [HEAD]
    for outcome in outcomes:
        for row in outcome.rows:
            lines += [_cells(row), *(_remark(f"  {note}") for note in row.notes)]
        if outcome.problem is not None:
            word = "failed" if outcome.failed else "skipped"
            lines.append(_remark(f"{outcome.title}: {word}, {outcome.problem}"))
    columns = [
        max(len(line[index]) for line in lines if any(line[1:])) for index in range(len(HEAD))
    ]
    return "\n".join(_line(line, columns) for line in lines)


def _remark(text: str) -> tuple[str, ...]:
    """A line of words only, which may run over all columns."""
    return text, *[""] * (len(HEAD) - 1)


def _cells(row: Row) -> tuple[str, ...]:
    beside = ", ".join(f"{name} {amount(one.p50, row.unit)}" for name, one in row.beside.items())
    ours: Spread = row.ours
    return (
        row.what,
        str(ours.n),
        *(amount(value, row.unit) for value in (ours.p50, ours.p95, ours.p99)),
        beside,
        row.target,
        _MARKS[row.met],
    )


def _line(cells: tuple[str, ...], columns: list[int]) -> str:
    """Numbers to the right, words to the left."""
    shown = (
        cell.rjust(width) if 1 <= index <= 4 else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, columns, strict=True))
    )
    return "  ".join(shown).rstrip()


def amount(value: float, unit: Unit) -> str:
    """As few digits as tell one run from another."""
    if value >= 1_000:
        text = f"{value:,.0f}"
    elif unit == "" or value == 0:
        text = f"{value:g}"
    else:
        text = f"{value:.3g}"
    return f"{text} {unit}".rstrip()
