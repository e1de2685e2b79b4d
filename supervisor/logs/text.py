"""Bytes that an engine and its libraries wrote at will, as lines that can be shown.

Nothing here trusts the log: lines may be endless, end in carriage returns as progress bars do,
hold terminal control sequences or no valid UTF-8. What is stored stays as it was written.
"""

import re
from collections.abc import Callable

Mask = Callable[[str], str]
"""Hides a launch's secrets in a line of its log."""

LINE_BYTES = 16 * 1024
"""A line's own limit; of a longer one this much is shown, and how much is not."""

_BREAK = re.compile(rb"\r\n|[\r\n]")
# CSI and OSC sequences, the other string sequences, and two-byte escapes.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


def as_it_is(line: str) -> str:
    return line


def split(data: bytes, *, unfinished: bool) -> tuple[list[bytes], int]:
    """The lines of ``data`` and how many of its bytes they take.

    ``unfinished`` says whether text behind the last break counts as a line. A carriage return at
    the very end may be half of a break, so alone it ends no line yet.
    """
    held = data.endswith(b"\r") and not unfinished
    pieces = _BREAK.split(data[:-1] if held else data)
    rest = pieces.pop()
    if unfinished:
        if rest:
            pieces.append(rest)
        return pieces, len(data)
    return pieces, len(data) - len(rest) - held


def clean(line: bytes, mask: Mask = as_it_is) -> str:
    """Text that is safe on a terminal: no escape sequence, other control characters spelled out.

    What is to be masked is masked before the line is cut, lest a part of it be shown.
    """
    text = mask(_safe(line[: 2 * LINE_BYTES].decode(errors="replace")))
    if len(line) <= LINE_BYTES:
        return text
    shown = text.encode(errors="replace")[:LINE_BYTES].decode(errors="ignore")
    return f"{shown.rstrip(chr(0xFFFD))} [{len(line) - LINE_BYTES} bytes cut]"


def _safe(text: str) -> str:
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", _SEQUENCE.sub("", text))
