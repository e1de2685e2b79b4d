"""One engine's log as a series of files, read as the one stream of bytes that the engine wrote.

The engine writes to the live file. Its head is moved now and then into archives beside it, of
which ``NAME.1`` is the newest. A place in the log is an offset in the stream, and it stays valid
whatever is moved: every file but the first begins with a line of ours that says where in the
stream the file begins. For the live file that line is put where the cut will be, over bytes that
an archive already holds, *before* the cut; so one act of the kernel changes both what the file
holds and what it says of itself, and there is no moment at which the two disagree.

A live file without that line begins the stream, or was truncated: then it goes on where the
newest archive ends.
"""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import TypeVar

HEAD_BYTES = 96
"""The shortest line of ours. A longer one is padded: it fills what the cut left over of a block."""
_HEAD = re.compile(rb"==== engine-supervisor: this log goes on at byte (\d{18}), (\d{7}) of them ")

CUT = ".cut"
"""A complete archive whose bytes are still in the live file too."""
TRUNCATE = ".truncate"
"""The same where the live file cannot be cut: it may or may not have been truncated yet."""
PART = ".part"
"""An archive that is being written. It counts for nothing."""
POSITION = ".position"
"""Beside the log of a container: how far its output was copied."""

_TRIES = 5
_RETRY_S = 0.002

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Head:
    """What a file says of itself: its first byte's offset in the stream, and its line's length."""

    base: int
    length: int


NO_HEAD = Head(0, 0)


def head_line(head: Head) -> bytes:
    line = b"==== engine-supervisor: this log goes on at byte %018d, %07d of them " % (
        head.base,
        head.length,
    )
    return line + b"=" * (HEAD_BYTES - 1 - len(line)) + b" " * (head.length - HEAD_BYTES) + b"\n"


def read_head(fd: int) -> Head:
    match = _HEAD.match(os.pread(fd, HEAD_BYTES, 0))
    return Head(int(match[1]), int(match[2])) if match else NO_HEAD


@dataclass(slots=True)
class Segment:
    """A file of the series. Bytes before ``start`` are in the one before it."""

    fd: int
    base: int
    start: int
    end: int


@dataclass(slots=True)
class Names:
    """The files of a series, by what they are called."""

    path: str
    numbered: dict[int, int] = field(default_factory=dict)
    """Number to inode."""
    pending: str | None = None
    inode: int = 0

    @classmethod
    def of(cls, path: str) -> "Names":
        folder, name = os.path.split(path)
        names = cls(path)
        with os.scandir(folder or ".") as entries:
            for entry in entries:
                if not entry.name.startswith(name):
                    continue
                suffix = entry.name[len(name) :]
                if not suffix:
                    names.inode = entry.inode()
                elif suffix in (CUT, TRUNCATE):
                    names.pending = suffix
                elif suffix[0] == "." and suffix[1:].isdecimal():
                    names.numbered[int(suffix[1:])] = entry.inode()
        return names

    def archive(self, number: int) -> str:
        return f"{self.path}.{number}"


class Series:
    """The files of one log, opened, as they were at one moment. Blocks."""

    def __init__(self, path: str) -> None:
        """Raises ``FileNotFoundError`` where there is no live file, and other ``OSError``."""
        self.segments: list[Segment] = []
        """Oldest first; where two overlap, the older one is right."""
        self.live: Segment
        self.settled = True
        """False while it is not known whether the live file was truncated; then it is left out."""
        try:
            self._open(path)
        except BaseException:
            self.close()
            raise

    def _open(self, path: str) -> None:
        self.names = names = Names.of(path)
        live = _open(path)
        self.live = Segment(live, 0, 0, 0)
        missed = False
        try:
            files = [names.archive(number) for number in sorted(names.numbered, reverse=True)]
            if names.pending:
                files.append(path + names.pending)
            for file in files:
                try:
                    self.segments.append(_segment(_open(file)))
                except FileNotFoundError:
                    missed = True
            self._whole = not missed and _contiguous(self.segments)
            self._head = os.pread(live, HEAD_BYTES, 0)
        except BaseException:
            os.close(live)
            raise
        # A pending archive is not behind the live file yet: it says nothing of where that begins.
        behind = self.segments[:-1] if names.pending else self.segments
        self.settled = names.pending != TRUNCATE
        self.live = _segment(live, behind[-1].end if behind else 0)
        self.segments.append(self.live)

    @property
    def start(self) -> int:
        """The oldest byte that is kept."""
        return self.segments[0].start

    @property
    def end(self) -> int:
        readable = self.segments if self.settled else self.segments[:-1]
        return max(segment.end for segment in readable)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the stream, fewer than asked for at the end of a file, none at the end of all.

        An offset that is no longer kept gives the oldest bytes there are: ask ``start`` first.
        """
        for segment in self.segments if self.settled else self.segments[:-1]:
            if segment.start <= offset < segment.end:
                size = min(size, segment.end - offset)
                return os.pread(segment.fd, size, offset - segment.base)
        return b""

    def steady(self) -> bool:
        """Nothing was moved since it was opened: what was read is what the stream holds there."""
        if (
            not self._whole
            or os.pread(self.live.fd, HEAD_BYTES, 0)[: len(self._head)] != self._head
        ):
            return False
        now, then = Names.of(self.names.path), self.names
        return (now.numbered, now.pending, now.inode) == (then.numbered, then.pending, then.inode)

    def close(self) -> None:
        for segment in self.segments:
            os.close(segment.fd)
        self.segments = []

    def __enter__(self) -> "Series":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def consistently(path: str, work: Callable[[Series], T]) -> T:
    """What ``work`` makes of the log, done again where the log was moved meanwhile."""
    for attempt in range(1, _TRIES + 1):
        with Series(path) as series:
            result = work(series)
            if attempt == _TRIES or series.steady():
                return result
        time.sleep(_RETRY_S * attempt)
    raise AssertionError


def remove(path: str) -> None:
    """Delete a log with all its archives. Raises ``OSError``."""
    names = Names.of(path)
    suffixes = [f".{number}" for number in names.numbered]
    for suffix in (*suffixes, CUT, TRUNCATE, PART, POSITION, ""):
        try:
            os.unlink(path + suffix)
        except FileNotFoundError:
            continue


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)


def _segment(fd: int, otherwise: int = 0) -> Segment:
    """``otherwise`` is where a file begins that does not say it. Takes the descriptor over."""
    try:
        head = read_head(fd)
        base = head.base if head.length else otherwise
        return Segment(fd, base, base + head.length, base + os.fstat(fd).st_size)
    except BaseException:
        os.close(fd)
        raise


def _contiguous(segments: list[Segment]) -> bool:
    return all(older.end == newer.start for older, newer in pairwise(segments))
