"""Text for people: tables, sizes, ages, and nothing that a terminal would obey."""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

NOT_KNOWN = "n/a"
"""A value that is supported and that nobody could tell. Never shown as 0."""
UNSUPPORTED = "unsupported"

# Control characters, line separators, and what turns the direction of text around.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_MS = {"ms": 1, None: 1000, "s": 1000, "m": 60_000, "h": 3_600_000}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def printable(text: str) -> str:
    """The text with every character that a terminal would obey spelled out instead."""
    return _UNSAFE.sub(_spelled, text)


def printable_line(line: str) -> str:
    """The same for a line of a log, where tabs are harmless and wanted."""
    return "\t".join(printable(part) for part in line.split("\t"))


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def say(text: str) -> None:
    print(text)


def warn(text: str) -> None:
    """To stderr; what stands on stdout is the answer alone."""
    tell(f"enginectl: {text}")


def tell(line: str) -> None:
    """On stderr, at once. Where that takes nothing there is nobody to be told."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(2)


def silence(fd: int) -> None:
    """What is still to be written there goes nowhere: Python would complain at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, fd)
    os.close(nowhere)


def open_streams() -> None:
    """Whoever closed one of the three wants nothing of it, and a socket must not get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns under their names. Cells are made printable here."""
    lines = [list(head), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def size(count: int | None) -> str:
    """Bytes in the unit that reads best."""
    if count is None:
        return NOT_KNOWN
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def age(at: str, now: datetime | None = None) -> str:
    """How long ago an RFC 3339 moment was."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return NOT_KNOWN
    seconds = max(0, int(((now or datetime.now(UTC)) - then).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def until(at: str, now: datetime | None = None) -> str:
    """How far ahead an RFC 3339 moment is: ``in 12 s``."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return f"at {at}"
    seconds = round((then - (now or datetime.now(UTC))).total_seconds())
    if seconds <= 0:
        return "now"
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"in {round(seconds / length)} {unit}"
    return f"in {seconds} s"


def duration_ms(text: str) -> int:
    """``90s``, ``500ms``, ``2m``, ``1h``; a bare number is seconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration, such as 90s, 500ms or 2m")
    return round(float(match[1]) * _MS[match[2]])


def milliseconds(text: str) -> int:
    """A bare number of them, or with a unit as for ``duration_ms``."""
    return int(text) if text.isascii() and text.isdecimal() else duration_ms(text)


def line_count(text: str) -> int:
    """A number of lines, none being one of them."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)


def byte_count(text: str) -> int:
    """``16GiB``, ``512M`` or a bare number; a unit is a power of 1024."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, such as 16GiB")
    power = "KMGT".index(match[2].upper()) + 1 if match[2] else 0
    whole, _, part = match[1].partition(".")
    tenths: int = 10 ** len(part)
    unit: int = 1024**power
    return int(whole + part) * unit // tenths
