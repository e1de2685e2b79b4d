"""Lines out of an engine's log, which is bytes that an engine and its libraries wrote at will.

Nothing here trusts the log: lines may be endless, end in carriage returns, hold terminal control
sequences or no valid UTF-8, and the file may be cut, replaced or missing at any moment. All of it
blocks, so callers run it in a worker thread.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

LINE_BYTES = 16 * 1024
"""A line's own limit; of a longer one this much is shown, and how much is not."""
WINDOW_BYTES = 4 << 20
"""How far back a tail looks for the lines it was asked for."""
STEP_BYTES = 256 * 1024
"""What a follower reads at once."""

# What a reply may hold: 100 KB for fifty lines, and in proportion for more.
_REPLY_LEAST = 95_000
_REPLY_PER_LINE = 1_900
_REPLY_MOST = 4 << 20

_BREAK = re.compile(rb"\r\n|[\r\n]")
# CSI and OSC sequences, the other string sequences, and two-byte escapes.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


Mask = Callable[[str], str]
"""Hides a launch's secrets in a line of its log."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines, and the byte offset behind the last of them."""

    lines: tuple[str, ...]
    cursor: int


def tail(path: str, lines: int, mask: Mask, *, unfinished: bool = True) -> Chunk:
    """The last ``lines`` lines, the oldest left out where they would make the reply too large.

    ``unfinished`` says whether text behind the last break counts as a line. A log that does not
    exist (yet, or any more) has no lines.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except FileNotFoundError:
        return Chunk((), 0)
    try:
        return _tail(fd, lines, mask, unfinished)
    finally:
        os.close(fd)


def read_from(path: str, cursor: int, mask: Mask, *, unfinished: bool = False) -> Chunk:
    """The lines behind ``cursor``; a log that has become shorter is read from its start."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except FileNotFoundError:
        return Chunk((), 0)
    try:
        size = os.fstat(fd).st_size
        if size < cursor:
            cursor = 0
        if size == cursor:
            return Chunk((), cursor)
        data = os.pread(fd, STEP_BYTES, cursor)
    finally:
        os.close(fd)
    at_end = cursor + len(data) >= size
    pieces, used = _split(data, unfinished and at_end)
    if not used and not at_end:
        # A line longer than a step is given in pieces: waiting for its end would stop the reader.
        pieces, used = _split(data, unfinished=True)
    return Chunk(tuple(mask(_clean(piece)) for piece in pieces), cursor + used)


def _tail(fd: int, lines: int, mask: Mask, unfinished: bool) -> Chunk:
    size = os.fstat(fd).st_size
    start = size
    data = b""
    while start and size - start < WINDOW_BYTES:
        step = min(STEP_BYTES, start)
        start -= step
        data = os.pread(fd, step, start) + data
        # One break more than lines: the first of them may be the end of a line that is cut.
        if data.count(b"\n") + data.count(b"\r") > 2 * lines + 1:
            break
    pieces, used = _split(data, unfinished)
    if start and len(pieces) > 1:
        pieces = pieces[1:]
    room = min(_REPLY_MOST, max(_REPLY_LEAST, lines * _REPLY_PER_LINE))
    kept: list[str] = []
    for piece in reversed(pieces[max(0, len(pieces) - lines) :]):
        line = mask(_clean(piece))
        room -= len(msgspec.json.encode(line)) + 1
        if room < 0 and kept:
            break
        kept.append(line)
    return Chunk(tuple(reversed(kept)), start + used)


def _split(data: bytes, unfinished: bool) -> tuple[list[bytes], int]:
    """The lines of ``data`` and how many of its bytes they take.

    A carriage return at the very end may be half of a break, so alone it ends no line yet.
    """
    held = data.endswith(b"\r") and not unfinished
    pieces = _BREAK.split(data[:-1] if held else data)
    rest = pieces.pop()
    if unfinished:
        if rest:
            pieces.append(rest)
        return pieces, len(data)
    return pieces, len(data) - len(rest) - held


def _clean(line: bytes) -> str:
    """Text that is safe on a terminal: no escape sequence, other control characters spelled out."""
    text = line[:LINE_BYTES].decode(errors="replace")
    if len(line) > LINE_BYTES:
        text = f"{text.rstrip(chr(0xFFFD))} [{len(line) - LINE_BYTES} bytes cut]"
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", _SEQUENCE.sub("", text))
