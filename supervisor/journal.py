"""The durable event log: ``events.jsonl``, one event a line, for log shippers and for cursors.

One thread writes, so that a slow disk never holds the event loop; an event goes on to the bus's
subscribers after its line was written. A line is one ``write`` of at most 16 KiB to a file opened
for append. Rotation renames (shippers follow a rename, and lose lines to a truncation), and never
within a few seconds of the last one: rsyslog and syslog-ng were seen to lose a whole file when two
rotations were 0.2 s apart.

A full disk costs lines, never events: their numbers are used up, subscribers get them, and the
file later says ``journal-gap {from, to}`` in a line that bears the last lost number.
"""

import errno
import os
import queue
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import msgspec
import structlog

from supervisor.bus import Published, flat
from supervisor.contracts._base import Fact
from supervisor.contracts.event import (
    Event,
    JournalGap,
    Stamp,
    SupervisorStarted,
    SupervisorStopping,
)

ROTATE_BYTES = 64 << 20
KEEP_ROTATED = 4
MIN_ROTATION_SECONDS = 5.0
TAIL_BYTES = 8 << 20
"""How much of the file's end is read at start, to continue the numbers and fill the ring."""

Deliver = Callable[[tuple[Published, ...]], None]

log = structlog.get_logger(__name__)


class Continuity(Fact, frozen=True, kw_only=True):
    """What must be known beside the file to go on counting: kept in the state directory."""

    epoch: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of an existing journal."""

    epoch: str
    last_seq: int
    events: tuple[Published, ...]


def prepare(path: Path, continuity: Path, boot_id: str) -> Tail:
    """Repair a torn last line, and decide where the numbering goes on.

    It goes on unless a machine went down under the daemon: lines that subscribers had already
    seen may then be missing from the file, and their numbers must not be given out twice.
    """
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    _clear_the_way(path)
    _drop_torn_line(path)
    events = _read_tail(path) or _read_tail(_rotated(path, 1))
    known = _read_continuity(continuity)
    clean = _ended_cleanly(events)
    continues = known and events and events[-1].stamp.epoch == known.epoch
    if known and continues and (clean or known.boot_id == boot_id):
        _write_continuity(continuity, Continuity(epoch=known.epoch, boot_id=boot_id))
        return Tail(known.epoch, events[-1].stamp.seq, events)
    epoch = token_hex(4)
    _write_continuity(continuity, Continuity(epoch=epoch, boot_id=boot_id))
    return Tail(epoch, 0, ())


def _ended_cleanly(events: tuple[Published, ...]) -> bool:
    """The daemon said goodbye. What its instances said after that was flushed with it."""
    for published in reversed(events):
        if isinstance(published.event, SupervisorStopping):
            return True
        if isinstance(published.event, SupervisorStarted):
            return False
    return False


class Journal:
    """The writer thread. ``record`` is called on the loop, ``deliver`` is called back from it."""

    def __init__(
        self,
        path: Path,
        deliver: Deliver,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        min_rotation_seconds: float = MIN_ROTATION_SECONDS,
    ) -> None:
        self._path = path
        self._deliver = deliver
        self._rotate_bytes = rotate_bytes
        self._min_rotation_seconds = min_rotation_seconds
        self._rotated_at = time.monotonic()
        self._queue: queue.SimpleQueue[Published | None] = queue.SimpleQueue()
        self._reopen = threading.Event()
        self._lost: Published | None = None
        self._lost_from = 0
        self._encoder = msgspec.json.Encoder()
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def record(self, published: Published) -> None:
        """Queue an event for writing. Never blocks."""
        self._queue.put(published)

    def reopen(self) -> None:
        """Before the next line, open the path anew: someone else may have renamed the file."""
        self._reopen.set()

    def close(self, timeout: float = 5.0) -> None:
        """Write out what is queued, for as long as ``timeout`` seconds, and stop."""
        self._queue.put(None)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            os.close(self._fd)

    def _open(self) -> int:
        # Not blocking, lest a pipe that lies in the file's place holds the start for ever.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._path, flags, 0o640)

    def _run(self) -> None:
        open_ended = True
        while open_ended:
            batch = [self._queue.get()]
            with suppress(queue.Empty):
                while len(batch) < 512:
                    batch.append(self._queue.get_nowait())
            open_ended = None not in batch
            events = tuple(item for item in batch if item is not None)
            for published in events:
                self._write(published)
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._deliver(events)

    def _write(self, published: Published) -> None:
        try:
            self._rotate_if_due()
            if self._lost is not None:
                self._append(self._gap_line(self._lost))
                self._lost = None
            self._append(published.encoded + b"\n")
        except OSError as error:
            if self._lost is None:
                self._lost_from = published.stamp.seq
                log.error("journal line lost", path=str(self._path), error=str(error))
            self._lost = published

    def _append(self, line: bytes) -> None:
        written = os.write(self._fd, line)
        if written != len(line):
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise OSError(errno.ENOSPC, "the line did not fit")
        self._size += written

    def _gap_line(self, last: Published) -> bytes:
        gap = JournalGap(from_=self._lost_from, to=last.stamp.seq)
        return flat(self._encoder, last.stamp, gap) + b"\n"

    def _rotate_if_due(self) -> None:
        if self._reopen.is_set():
            self._reopen.clear()
            self._swap()
        old_enough = time.monotonic() - self._rotated_at >= self._min_rotation_seconds
        if self._size >= self._rotate_bytes and old_enough:
            for number in range(KEEP_ROTATED, 0, -1):
                source = self._path if number == 1 else _rotated(self._path, number - 1)
                with suppress(FileNotFoundError):
                    os.replace(source, _rotated(self._path, number))
            self._rotated_at = time.monotonic()
            self._swap()

    def _swap(self) -> None:
        fresh = self._open()
        os.close(self._fd)
        self._fd = fresh
        self._size = os.fstat(fresh).st_size


class _Line(Stamp, frozen=True, kw_only=True):
    """A line's stamp, decoded apart from its body."""


_stamp_decoder = msgspec.json.Decoder(_Line)
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def _rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _clear_the_way(path: Path) -> None:
    """A folder, a pipe or a socket takes no lines: it is moved aside."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            aside = path.with_name(f"{path.name}.foreign-{token_hex(4)}")
            path.rename(aside)
            log.warning("what lay in the journal's place was moved", to=str(aside))


def _drop_torn_line(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, TAIL_BYTES, max(0, size - TAIL_BYTES))
        whole = end.rfind(b"\n") + 1
        if end and whole != len(end):
            os.ftruncate(fd, size - len(end) + whole)
    finally:
        os.close(fd)


def _read_tail(path: Path) -> tuple[Published, ...]:
    """The last lines that can be understood. A newer version's event kinds are passed over."""
    try:
        with path.open("rb") as file:
            start = max(0, path.stat().st_size - TAIL_BYTES)
            file.seek(start)
            lines = file.read().splitlines()[1 if start else 0 :]
    except FileNotFoundError:
        return ()
    found: list[Published] = []
    for line in lines:
        try:
            stamp, event = _stamp_decoder.decode(line), _event_decoder.decode(line)
        except msgspec.DecodeError:
            found.clear()
            continue
        if found and (
            stamp.epoch != found[-1].stamp.epoch or _starts(stamp, event) != _next(found)
        ):
            found.clear()
        if isinstance(event, JournalGap):
            found.clear()
        found.append(Published(stamp, event, line))
    return tuple(found)


def _starts(stamp: Stamp, event: Event) -> int:
    return event.from_ if isinstance(event, JournalGap) else stamp.seq


def _next(found: list[Published]) -> int:
    return found[-1].stamp.seq + 1


def _read_continuity(path: Path) -> Continuity | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Continuity)
    except (OSError, msgspec.DecodeError):
        return None


def _write_continuity(path: Path, value: Continuity) -> None:
    """Without it the next start begins a new epoch, which is no reason not to start this one."""
    if _read_continuity(path) == value:
        return
    try:
        _write_file(path, value)
    except OSError as error:
        log.warning("the journal's epoch cannot be kept", path=str(path), error=str(error))


def _write_file(path: Path, value: Continuity) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    with fresh.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(msgspec.json.encode(value))
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
