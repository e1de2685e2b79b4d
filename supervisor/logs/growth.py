"""What a log gained since the last look, while its engine starts. Blocks, and does little."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from supervisor.logs.series import Series, consistently
from supervisor.logs.text import clean, split

LOOK_BYTES = 64 * 1024
"""Of a log that grows faster, only the end is looked at: what an engine does now is told there."""

T = TypeVar("T")
Sift = Callable[[tuple[str, ...]], T]
"""Makes something of new lines; runs in a worker thread."""


@dataclass(frozen=True, slots=True)
class Grown(Generic[T]):
    """What came since the last look, and the place behind its last whole line."""

    found: T
    cursor: int


@dataclass(slots=True)
class Growth(Generic[T]):
    """One reader of one log. Used by one thread at a time."""

    path: str
    cursor: int
    sift: Sift[T]
    _seen: tuple[int, int, int] | None = None
    _rest: bytes = field(default=b"")

    def look(self) -> Grown[T] | None:
        """None where nothing is new. Raises ``OSError``.

        A line that has no end yet is looked at as well, each time that it has changed: the last
        word of a progress bar is ended only by the next one.
        """
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            return None
        mark = stat.st_ino, stat.st_size, stat.st_ctime_ns
        if mark == self._seen:
            return None
        data, cursor = consistently(self.path, self._new)
        self._seen = mark
        pieces, used = split(data, unfinished=False)
        rest = data[used:]
        lines = [clean(piece) for piece in pieces]
        if rest and rest != self._rest:
            lines.append(clean(rest))
        if len(data) == LOOK_BYTES and not used:
            used = len(data)
        self.cursor, self._rest = cursor + used, rest
        return Grown(self.sift(tuple(lines)), self.cursor) if lines else None

    def _new(self, series: Series) -> tuple[bytes, int]:
        begin = self.cursor
        if begin > series.end and series.settled:
            begin = series.live.start
        begin = max(begin, series.end - LOOK_BYTES, series.start)
        return series.read(begin, LOOK_BYTES), begin
