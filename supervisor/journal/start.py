"""What a start makes of the journal that is there: its torn end repaired, its numbers continued."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import msgspec
import structlog

from supervisor.bus import LINE_BYTES, Published
from supervisor.contracts.event import Event, JournalGap, Stamp
from supervisor.journal.promise import Continuity, Promise, read

TAIL_BYTES = 8 << 20
"""How much of the file's end is read at start, to continue the numbers and fill the ring."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Tail:
    """Where counting goes on, and the events before that which are there without a gap."""

    epoch: str
    last_seq: int
    events: tuple[Published, ...]
    promise: Promise


def prepare(path: Path, continuity: Path, boot_id: str) -> Tail:
    """Repair a torn last line, and decide where the numbering goes on.

    It goes on unless a machine went down under the daemon, or lines were lost that no gap tells of,
    or the file is not the one that the last daemon left: numbers that subscribers had already seen
    may then be missing from it, and must not be given out twice.
    """
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    _clear_the_way(path)
    _drop_torn_line(path)
    last, events = _end(_lines(path))
    known = read(continuity)
    if (
        known is not None
        and last is not None
        and last.epoch == known.epoch
        and _has_all(last, known, boot_id)
    ):
        return _kept(continuity, known.epoch, boot_id, last.seq, events)
    return _kept(continuity, token_hex(4), boot_id, 0, ())


def rotated(path: Path, number: int) -> Path:
    """The journal's ``number``-th file before this one."""
    return path.with_name(f"{path.name}.{number}")


def first_number(path: Path) -> int | None:
    """Of the file's first line; None where there is none that can be read."""
    try:
        line = _beginning(path).partition(b"\n")[0]
        stamp, head = _stamp_decoder.decode(line), _head_decoder.decode(line)
    except (OSError, msgspec.DecodeError):
        return None
    return head.from_ if head.kind == "journal-gap" else stamp.seq


def _beginning(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.pread(fd, LINE_BYTES + 1, 0)  # of a pipe this is an error, and no wait
    finally:
        os.close(fd)


def _kept(
    continuity: Path, epoch: str, boot_id: str, last_seq: int, events: tuple[Published, ...]
) -> Tail:
    promise = Promise(continuity, Continuity(epoch=epoch, boot_id=boot_id))
    promise.give()
    return Tail(epoch, last_seq, events, promise)


def _has_all(last: Stamp, known: Continuity, boot_id: str) -> bool:
    """No number was given out behind the file's last line."""
    if known.boot_id != boot_id:
        return known.ended_at == last.seq
    return known.ended_at is None or known.ended_at <= last.seq


class _Line(Stamp, frozen=True, kw_only=True):
    """A line's stamp, decoded apart from its body."""


class _Head(msgspec.Struct):
    """As much of a body as says which number the line begins with."""

    kind: str = ""
    from_: int = msgspec.field(name="from", default=0)


_head_decoder = msgspec.json.Decoder(_Head)
_stamp_decoder = msgspec.json.Decoder(_Line)
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


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


def _lines(path: Path) -> list[bytes]:
    """Those that lie whole within the last ``TAIL_BYTES``."""
    try:
        with path.open("rb") as file:
            start = max(0, path.stat().st_size - TAIL_BYTES)
            file.seek(start)
            return file.read().split(b"\n")[1 if start else 0 : -1]
    except FileNotFoundError:
        return []


def _end(lines: Sequence[bytes]) -> tuple[Stamp | None, tuple[Published, ...]]:
    """The last number that was given out, and the unbroken row of events that leads to it.

    Of a newer version's event the number counts, though its kind is unknown here. A last line
    without a number that can be read leaves none to go on from.
    """
    last: Stamp | None = None
    found: list[Published] = []
    for line in lines:
        try:
            last = stamp = _stamp_decoder.decode(line)
        except msgspec.DecodeError:
            last = None
            found.clear()
            continue
        try:
            event = _event_decoder.decode(line)
        except msgspec.DecodeError:
            found.clear()
            continue
        if found and (stamp.epoch != found[-1].stamp.epoch or _first(stamp, event) != _next(found)):
            found.clear()
        if isinstance(event, JournalGap):
            found.clear()
        found.append(Published(stamp, event, line))
    return last, tuple(found)


def _first(stamp: Stamp, event: Event) -> int:
    return event.from_ if isinstance(event, JournalGap) else stamp.seq


def _next(found: list[Published]) -> int:
    return found[-1].stamp.seq + 1
