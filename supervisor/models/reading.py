"""A file read in small, counted pieces, whatever it claims about itself."""

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager

PIECE = 16 << 10
"""Bytes a read. Each read lets the other threads run, so this also bounds how long they wait."""


class BadFile(Exception):
    """A file is not what it has to be; the text says why. Never leaves this package."""


class Reader:
    """Reads forward through an open file, and no further than ``budget`` bytes in all."""

    def __init__(self, fd: int, size: int, budget: int) -> None:
        self.size = size
        self._fd = fd
        self._budget = budget
        self._start = 0
        """Where in the file the piece at hand begins."""
        self._piece = b""
        self._at = 0

    @property
    def position(self) -> int:
        return self._start + self._at

    @property
    def left(self) -> int:
        """Bytes of the file that are still ahead."""
        return self.size - self.position

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes. Raises ``BadFile`` where the file, or the budget, ends."""
        end = self._at + count
        if end > len(self._piece):
            self._fill(count)
            end = count
        piece = self._piece[self._at : end]
        self._at = end
        return piece

    def skip(self, count: int) -> None:
        """Go on without reading. Raises ``BadFile`` where the file ends before."""
        if count > self.left:
            raise BadFile(f"it ends {count - self.left} bytes before something in its header does")
        if self._at + count <= len(self._piece):
            self._at += count
        else:
            self._start, self._piece, self._at = self.position + count, b"", 0

    def unpack(self, form: struct.Struct) -> int | float | bool:
        """One number."""
        value: int | float | bool = form.unpack(self.take(form.size))[0]
        return value

    def skip_strings(self, count: int, length: struct.Struct) -> None:
        """Go past ``count`` texts, each behind its length. The one loop that has to be fast."""
        size, unpack = length.size, length.unpack_from
        while count:
            piece, at = self._piece, self._at
            last = len(piece) - size
            while count and at <= last:
                end = at + size + unpack(piece, at)[0]
                if end > len(piece):
                    break
                at, count = end, count - 1
            self._at = at
            if count:
                self.skip(int(self.unpack(length)))
                count -= 1

    def _fill(self, count: int) -> None:
        if count > self.left:
            raise BadFile(f"it ends {count - self.left} bytes before its header does")
        if count > self._budget:
            raise BadFile("its header is larger than any model's")
        start = self.position
        parts: list[bytes] = []
        missing, wanted = count, max(count, PIECE)
        while missing > 0:
            part = os.pread(self._fd, min(wanted, PIECE), start + sum(map(len, parts)))
            if not part:
                raise BadFile("it became shorter while it was read")
            parts.append(part)
            missing -= len(part)
            wanted -= len(part)
        self._piece, self._start, self._at = b"".join(parts), start, 0
        self._budget -= len(self._piece)


@contextmanager
def reading(path: str, budget: int) -> Iterator[Reader]:
    """Open a regular file; anything else in its place is ``BadFile``, and none of it can hang."""
    try:
        # Non-blocking, or opening a fifo would wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise BadFile(f"cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise BadFile("is no regular file")
        yield Reader(fd, facts.st_size, budget)
    except OSError as error:
        raise BadFile(f"cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)


def whole(path: str, limit: int) -> bytes:
    """A small file, all of it. Raises ``BadFile`` for one that is larger than ``limit`` bytes."""
    with reading(path, limit + PIECE) as reader:
        if reader.size > limit:
            raise BadFile(f"has {reader.size} bytes, which is too much for such a file")
        return reader.take(reader.size)
