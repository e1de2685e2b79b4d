"""Lines out of an engine's log: its end, or what came behind a place. All of it blocks."""

import os
from dataclasses import dataclass

import msgspec

from supervisor.logs.series import Series, consistently
from supervisor.logs.text import Mask, as_it_is, clean, split

WINDOW_BYTES = 4 << 20
"""How far back a tail looks for the lines it was asked for."""
STEP_BYTES = 256 * 1024
"""What is read at once."""

# What a reply may hold: 100 KB for fifty lines, and in proportion for more.
_REPLY_LEAST = 95_000
_REPLY_PER_LINE = 1_900
_REPLY_MOST = 4 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines, and the place behind the last of them: an offset in the stream of the log."""

    lines: tuple[str, ...]
    cursor: int


def tail(path: str, lines: int, mask: Mask = as_it_is, *, unfinished: bool = True) -> Chunk:
    """The last ``lines`` lines, the oldest left out where they would make the reply too large.

    ``unfinished`` says whether text behind the last break counts as a line. A log that does not
    exist (yet, or any more) has no lines.
    """

    def work(series: Series) -> Chunk:
        pieces, cursor = _last(series, lines, WINDOW_BYTES, unfinished)
        room = min(_REPLY_MOST, max(_REPLY_LEAST, lines * _REPLY_PER_LINE))
        kept: list[str] = []
        for piece in reversed(pieces):
            line = clean(piece, mask)
            room -= len(msgspec.json.encode(line)) + 1
            if room < 0 and kept:
                break
            kept.append(line)
        return Chunk(tuple(reversed(kept)), cursor)

    try:
        return consistently(path, work)
    except FileNotFoundError:
        return Chunk((), 0)


def tail_text(path: str, limit: int, mask: Mask = as_it_is) -> str:
    """The lines within the last ``limit`` bytes, from a line's start on where there is one."""

    def work(series: Series) -> str:
        pieces, _ = _last(series, limit, limit, unfinished=True)
        return "".join(clean(piece, mask) + "\n" for piece in pieces)

    try:
        return consistently(path, work)
    except OSError:
        return ""


def read_from(path: str, cursor: int, mask: Mask = as_it_is, *, unfinished: bool = False) -> Chunk:
    """The lines behind ``cursor``.

    A line is missed only where it is not kept any more, and then a line of ours says so; a log
    that has become shorter, which is nobody's doing here, is read from its start.
    """

    def work(series: Series) -> Chunk:
        at = cursor
        note: tuple[str, ...] = ()
        if at > series.end:
            if not series.settled:
                return Chunk((), at)
            at = series.live.start
        elif at < series.start:
            note = (f"[{series.start - at} bytes of this log are not kept any more]",)
            at = series.start
        data = _read(series, at, STEP_BYTES)
        at_end = at + len(data) >= series.end
        pieces, used = split(data, unfinished=unfinished and at_end)
        if not used and not at_end:
            # A line longer than a step is given in pieces: to wait for its end would be for good.
            pieces, used = split(data, unfinished=True)
        return Chunk((*note, *(clean(piece, mask) for piece in pieces)), at + used)

    try:
        return consistently(path, work)
    except FileNotFoundError:
        return Chunk((), 0)


def earlier(newest: str, name: str, after: int) -> tuple[str, int]:
    """The log that a place is in: an earlier attempt's beside the newest, which else is read whole.

    ``name`` comes from a client, so it names a file of that one folder and nothing else.
    """
    folder, own = os.path.split(newest)
    if name == own:
        return newest, after
    path = os.path.join(folder, name)
    known = name.endswith(".log") and os.path.basename(name) == name and os.path.isfile(path)
    return (path, after) if known else (newest, 0)


def _last(series: Series, lines: int, window: int, unfinished: bool) -> tuple[list[bytes], int]:
    """The last lines within a window, oldest first, and the place behind them."""
    end = start = series.end
    floor = max(series.start, end - window)
    data = b""
    while start > floor:
        begin = max(floor, start - STEP_BYTES)
        data = _read(series, begin, start - begin) + data
        start = begin
        # One break more than lines: the first of them may be the end of a line that is cut.
        if data.count(b"\n") + data.count(b"\r") > 2 * lines + 1:
            break
    pieces, used = split(data, unfinished=unfinished)
    # What a window begins with is the rest of a line, unless a line ends right before it.
    if (
        start > series.start
        and len(pieces) > 1
        and _read(series, start - 1, 1) not in (b"\n", b"\r")
    ):
        pieces = pieces[1:]
    return pieces[max(0, len(pieces) - lines) :], start + used


def _read(series: Series, offset: int, size: int) -> bytes:
    """All of a range, over as many files as it lies in."""
    parts: list[bytes] = []
    while size > 0 and (part := series.read(offset, size)):
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)
