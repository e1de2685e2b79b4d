"""The thread that writes the journal, so that a slow disk never holds the event loop.

An event goes on to the bus's subscribers after its line was written. A line is one ``write`` of at
most 16 KiB to a file opened for append. Rotation renames (shippers follow a rename, and lose lines
to a truncation), and never within a few seconds of the last one: rsyslog and syslog-ng were seen to
lose a whole file when two rotations were 0.2 s apart.

A full disk costs lines, never events: their numbers are used up, subscribers get them, and the
file later says ``journal-gap {from, to}`` in a line that bears the last lost number; so it does of
lines that somebody removed with their file. A rotation or a reopening that fails costs nothing: the
file that is open goes on, and it is tried again.
"""

import errno
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from supervisor.bus import Published, flat
from supervisor.contracts.event import JournalGap
from supervisor.contracts.rpc import WriterHealth
from supervisor.journal.promise import Promise
from supervisor.journal.start import first_number, rotated

ROTATE_BYTES = 64 << 20
KEEP_ROTATED = 4
MIN_ROTATION_SECONDS = 5.0
RETRY_SECONDS = 1.0
"""Between two attempts to open the file anew, or to give the promise."""
BATCH = 512

Deliver = Callable[[tuple[Published, ...]], None]

log = structlog.get_logger(__name__)


class Journal:
    """The writer thread. ``record`` is called on the loop, ``deliver`` is called back from it."""

    def __init__(
        self,
        path: Path,
        deliver: Deliver,
        promise: Promise,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        min_rotation_seconds: float = MIN_ROTATION_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._path = path
        self._deliver = deliver
        self._promise = promise
        self._rotate_bytes = rotate_bytes
        self._min_rotation_seconds = min_rotation_seconds
        self._retry_seconds = retry_seconds
        self._rotated_at = time.monotonic()
        self._queue: queue.SimpleQueue[Published | None] = queue.SimpleQueue()
        self._reopen = threading.Event()
        self._stale = False
        self._retry_at = 0.0
        self._promise_at = 0.0
        self._lost: Published | None = None
        self._lost_from = 0
        self._newest: Published | None = None
        self._torn = False
        self._removed = False
        self._lost_count = 0
        self._error: str | None = None
        self._encoder = msgspec.json.Encoder()
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        self._first = first_number(self._path)
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def record(self, published: Published) -> None:
        """Queue an event for writing. Never blocks."""
        self._queue.put(published)

    @property
    def health(self) -> WriterHealth:
        return WriterHealth(lost=self._lost_count, error=self._error)

    def reopen(self) -> None:
        """Before the next line, open the path anew: someone else may have renamed the file."""
        self._reopen.set()

    def close(self, timeout: float = 5.0) -> None:
        """Write out what is queued, for as long as ``timeout`` seconds, and stop."""
        self._queue.put(None)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            os.close(self._fd)
            self._conclude()

    def _conclude(self) -> None:
        if self._lost is None and self._promise.given and self._newest is not None:
            try:
                self._promise.conclude(self._newest.stamp.seq)
            except OSError as error:
                log.warning("the journal's end cannot be noted", error=str(error))

    def _run(self) -> None:
        open_ended = True
        while open_ended:
            batch = [self._queue.get()]
            with suppress(queue.Empty):
                while len(batch) < BATCH:
                    batch.append(self._queue.get_nowait())
            open_ended = None not in batch
            events = tuple(item for item in batch if item is not None)
            for published in events:
                self._write(published)
            self._pass_on(events)
        if self._lost is not None:
            with suppress(OSError):
                self._tell_gap(self._lost)

    def _pass_on(self, events: tuple[Published, ...]) -> None:
        try:
            self._deliver(events)
        except RuntimeError:
            log.debug("nobody is left to be told", events=len(events))
        except Exception:
            log.exception("events could not be delivered", events=len(events))

    def _write(self, published: Published) -> None:
        try:
            self._tend()
            if self._lost is not None:
                self._tell_gap(self._lost)
            elif not self._promise.given:
                self._promise_again()
            self._append(published.encoded + b"\n", published.stamp.seq)
            self._error, self._newest = None, published
        except Exception as error:
            if self._lost is None:
                self._lost_from = published.stamp.seq
            self._lost = published
            self._note_loss(error)

    def _note_loss(self, error: Exception) -> None:
        self._lost_count += 1
        news = self._error is None
        self._error = getattr(error, "strerror", None) or repr(error)
        if news:
            log.error("journal line lost", path=str(self._path), error=str(error))
        if self._promise.given:
            self._withdraw(news)

    def _withdraw(self, news: bool) -> None:
        try:
            self._promise.withdraw()
        except OSError as refused:
            if news:
                log.error("and the journal's epoch cannot be withdrawn", error=str(refused))

    def _tell_gap(self, last: Published) -> None:
        gap = JournalGap(from_=self._lost_from, to=last.stamp.seq)
        self._append(flat(self._encoder, last.stamp, gap) + b"\n", self._lost_from)
        self._lost, self._newest = None, last
        self._promise_again()

    def _promise_again(self) -> None:
        now = time.monotonic()
        if now >= self._promise_at:
            self._promise_at = now + self._retry_seconds
            self._promise.give()

    def _append(self, line: bytes, number: int) -> None:
        if self._stale and os.fstat(self._fd).st_nlink == 0:
            raise OSError(errno.ENOENT, "the file was removed")
        whole = b"\n" + line if self._torn else line
        written = os.write(self._fd, whole)
        if written != len(whole):
            self._tear_off(written)
            raise OSError(errno.ENOSPC, "the line did not fit")
        self._torn = False
        self._size += written
        self._first = self._first or number

    def _tear_off(self, written: int) -> None:
        """Of the file as it is: somebody may have cut it, and a longer one would be filled up."""
        before, self._torn = self._torn, True
        with suppress(OSError):
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            self._torn = before

    def _tend(self) -> None:
        """Rotate, and open the path anew, where that is due."""
        now = time.monotonic()
        self._removed = os.fstat(self._fd).st_nlink == 0
        if self._reopen.is_set() or self._removed:
            self._reopen.clear()
            self._stale = True
        try:
            due = now - self._rotated_at >= self._min_rotation_seconds
            if due and self._size >= self._rotate_bytes:
                self._rotated_at = now
                self._shift()
                self._stale = True
            if self._stale and now >= self._retry_at:
                self._swap()
                self._stale = False
        except OSError as error:
            self._retry_at = now + self._retry_seconds
            log.warning("the journal goes on in its old file", error=str(error))

    def _shift(self) -> None:
        """Make the path free, unless what lies there is not the file that is open.

        A place that is free, as after an attempt that failed half way, is where shifting ends: else
        each attempt would cost the oldest file.
        """
        if not self._in_place():
            return
        places = [self._path, *(rotated(self._path, it + 1) for it in range(KEEP_ROTATED))]
        free = next((at for at, place in enumerate(places) if not place.exists()), KEEP_ROTATED)
        for number in range(free, 0, -1):
            os.replace(places[number - 1], places[number])

    def _in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _swap(self) -> None:
        self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        fresh = self._open()
        os.close(self._fd)
        self._fd = fresh
        self._size = os.fstat(fresh).st_size
        self._torn = False
        if self._removed and self._first is not None and self._newest is not None:
            self._lost_from, self._lost = self._first, self._lost or self._newest
        self._first = first_number(self._path)

    def _open(self) -> int:
        # Not blocking, lest a pipe that lies in the file's place holds the start for ever.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._path, flags, 0o640)
