"""A log brought back within its bounds while its engine goes on writing to it.

The head of the live file is copied into an archive and made durable, then taken out of the live
file. Whatever interrupts this, the next call finds out from the files alone how far it came:

- ``.part``: the copy was not complete. It is thrown away; nothing else was touched.
- ``.cut``: the copy is complete. The line that says where the live file goes on is put in its
  place, and the head collapses with one act of the kernel; only then does the archive get its
  number. Done twice, each of these steps changes nothing more, and readers prefer the archive for
  what lies in both.
- ``.truncate``: as ``.cut``, on a file system that cannot collapse (tmpfs, btrfs, NFS). The live
  file is truncated instead. **Lines that the engine writes between the last look at the file and
  the truncation are lost**: some microseconds' worth, and ``may_have_lost`` says that it can have
  happened. Whether it was done before a crash is told by comparing what the file begins with.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from supervisor.contracts.config import LogsConfig
from supervisor.logs.collapse import block_size, can_collapse, collapse_head
from supervisor.logs.series import (
    CUT,
    HEAD_BYTES,
    PART,
    TRUNCATE,
    Head,
    Names,
    Series,
    head_line,
    read_head,
)

KEEP_BYTES = 64 * 1024
"""What stays in the live file, so that it is not suddenly empty for whoever looks at it."""
_STEP = 1 << 20
_SEARCH = 1 << 20
"""How far back from a cut the end of a line is looked for."""
_SPARE_BYTES = 1 << 20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

At = Callable[[str], None]


def _pass(step: str) -> None:
    """The usual hook: nothing happens at a step."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """What was done to a log."""

    archived: int = 0
    """Bytes moved into archives."""
    may_have_lost: bool = False
    """The file was truncated under a writer."""
    trouble: str | None = None
    """Why it is still too large. Nothing was lost, and the next call tries again."""


def rotate(path: str, limits: LogsConfig, at: At = _pass) -> Rotation:
    """Finish what was interrupted, then move as much as is too much. Blocks.

    Raises ``OSError`` where the log cannot be reached at all.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except FileNotFoundError:
        return Rotation()
    try:
        return _Rotator(path, fd, limits, at).run()
    finally:
        os.close(fd)


class _Rotator:
    def __init__(self, path: str, fd: int, limits: LogsConfig, at: At) -> None:
        self.path = path
        self.fd = fd
        self.limits = limits
        self.at = at
        self.done = Rotation()

    def run(self) -> Rotation:
        try:
            self._recover()
            # A busy engine may fill the file faster than this empties it; the next call goes on.
            for _ in range(self.limits.archives + 1):
                if self._size() <= self.limits.max_bytes:
                    break
                self._drop_surplus()
                self._move()
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            self.done = replace(self.done, trouble=f"no space for an archive of {self.path}")
        return self.done

    def _size(self) -> int:
        return os.fstat(self.fd).st_size

    def _base(self) -> Head:
        """Where the live file begins, and how much of it is our own line."""
        with Series(self.path) as series:
            live = series.live
            return Head(live.base, live.start - live.base)

    # ── what was interrupted ─────────────────────────────────────────────────

    def _recover(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.path + PART)
        match Names.of(self.path).pending:
            case str(pending) if pending == CUT:
                self._cut()
            case str():
                self._finish_truncation()

    def _finish_truncation(self) -> None:
        archive = os.open(self.path + TRUNCATE, os.O_RDWR | os.O_CLOEXEC)
        try:
            if self._begins_with(archive):
                self._truncate(archive)
        finally:
            os.close(archive)
        self._number(TRUNCATE)

    def _begins_with(self, archive: int) -> bool:
        """Whether the live file still holds what the archive has of it."""
        offset = 0 if read_head(self.fd).length else read_head(archive).length
        size = os.fstat(archive).st_size - offset
        if self._size() < size:
            return False
        return all(
            os.pread(self.fd, _STEP, here)[: size - here]
            == os.pread(archive, _STEP, offset + here)[: size - here]
            for here in range(0, size, _STEP)
        )

    # ── one piece ────────────────────────────────────────────────────────────

    def _move(self) -> None:
        head = self._base()
        keep = min(KEEP_BYTES, self.limits.max_bytes // 4)
        length = self._line_end(min(self._size() - keep, 2 * self.limits.max_bytes), head.length)
        self._copy(head, length)
        self.at("copied")
        os.rename(self.path + PART, self.path + CUT)
        _sync_folder(self.path)
        self.at("complete")
        self._cut()
        self.done = replace(self.done, archived=self.done.archived + length - head.length)

    def _line_end(self, limit: int, floor: int) -> int:
        """The last end of a line before ``limit``; that itself where no line ends near it."""
        begin = max(floor, limit - min(_SEARCH, limit // 2))
        data = os.pread(self.fd, limit - begin, begin)
        found = data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
        return begin + found if found else limit

    def _copy(self, head: Head, length: int) -> None:
        """The first ``length`` bytes of the live file as a durable ``.part``."""
        part = self.path + PART
        try:
            self._make_room(length)
            copy = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                if head.base and not head.length:
                    # It says nothing of where it begins, as its archive has to.
                    _write(copy, head_line(Head(head.base - HEAD_BYTES, HEAD_BYTES)))
                _copy_range(self.fd, copy, 0, length)
                os.fsync(copy)
            finally:
                os.close(copy)
        except OSError:
            with suppress(OSError):
                os.unlink(part)
            raise

    def _make_room(self, length: int) -> None:
        """Where it is tight, the archive that the new one will push out goes first."""
        names = Names.of(self.path)
        oldest = max(names.numbered, default=0)
        if oldest >= self.limits.archives and not self._fits(length):
            os.unlink(names.archive(oldest))
        if not self._fits(length):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _fits(self, length: int) -> bool:
        free = os.fstatvfs(self.fd)
        return free.f_bavail * free.f_frsize >= length + _SPARE_BYTES

    def _cut(self) -> None:
        """Take out of the live file what the pending archive holds."""
        archive = os.open(self.path + CUT, os.O_RDWR | os.O_CLOEXEC)
        try:
            begins = read_head(archive)
            end = begins.base + os.fstat(archive).st_size
            if self._collapse(end):
                self._number(CUT)
                return
            os.rename(self.path + CUT, self.path + TRUNCATE)
            _sync_folder(self.path)
            self._truncate(archive)
        finally:
            os.close(archive)
        self._number(TRUNCATE)

    def _collapse(self, end: int) -> bool:
        """Let the live file begin with our line, which ends at ``end`` of the stream."""
        head = self._base()
        if head.base + head.length >= end:
            return True
        block = block_size(self.fd)
        offset = (end - head.base - HEAD_BYTES) // block * block
        if offset <= 0 or not can_collapse(self.fd):
            return False
        fresh = Head(head.base + offset, end - head.base - offset)
        covered = os.pread(self.fd, fresh.length, offset)
        os.pwrite(self.fd, head_line(fresh), offset)
        self.at("marked")
        if not collapse_head(self.fd, offset):
            os.pwrite(self.fd, covered, offset)
            return False
        self.at("collapsed")
        return True

    def _truncate(self, archive: int) -> None:
        """Copy what came meanwhile, then truncate, with as little as can be in between."""
        offset = os.fstat(archive).st_size
        offset -= 0 if read_head(self.fd).length else read_head(archive).length
        os.lseek(archive, 0, os.SEEK_END)
        self.done = replace(self.done, may_have_lost=True)
        while data := os.pread(self.fd, _STEP, offset):
            _write(archive, data)
            offset += len(data)
        os.ftruncate(self.fd, 0)
        os.fsync(archive)
        self.at("truncated")

    def _number(self, pending: str) -> None:
        """Give a pending archive its number, 1; those beyond the bound go."""
        names = Names.of(self.path)
        run = 0
        while run + 1 in names.numbered:
            run += 1
        for number in range(run, 0, -1):
            os.rename(names.archive(number), names.archive(number + 1))
            self.at("shifted")
        os.rename(self.path + pending, names.archive(1))
        self.at("numbered")
        for number in Names.of(self.path).numbered:
            if number > self.limits.archives:
                os.unlink(names.archive(number))
        _sync_folder(self.path)

    def _drop_surplus(self) -> None:
        """Of a log that grew unwatched, what could be in no archive at the end is not copied."""
        bound = (self.limits.archives + 1) * self.limits.max_bytes
        if self._size() < 2 * bound:
            return
        head = self._base()
        end = self._line_end(self._size() - bound, head.length)
        names = Names.of(self.path)
        if self._collapse(head.base + end):
            for number in names.numbered:
                os.unlink(names.archive(number))


def _copy_range(source: int, target: int, begin: int, end: int) -> None:
    while begin < end:
        data = os.pread(source, min(_STEP, end - begin), begin)
        if not data:
            raise OSError(errno.EIO, "the log became shorter while it was copied")
        _write(target, data)
        begin += len(data)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _sync_folder(path: str) -> None:
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
