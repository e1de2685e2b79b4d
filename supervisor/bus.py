"""The in-process event bus: typed bodies in, numbered events out, in one order for everyone.

There is one bounded ring of events, encoded once. A subscriber is a place in that ring and
nothing else: a slow one costs no memory and delays nobody; one that falls out of the ring is
told so. Where a journal is attached, an event reaches subscribers after it was written down.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import anyio
import msgspec

from supervisor.contracts.event import Cursor, Event, Stamp
from supervisor.contracts.host import SELF

RING_EVENTS = 16_384
LINE_BYTES = (16 << 10) - 1
"""An event's encoding, the line end not counted: shippers cut what is longer."""


@dataclass(frozen=True, slots=True)
class Published:
    """A numbered event, and the one encoding of it that everybody shares."""

    stamp: Stamp
    event: Event
    encoded: bytes
    """The flat wire object, without a line end."""


class CursorExpired(Exception):
    """The place is not in the ring (any more, or of this epoch). ``valid`` is the newest one."""

    def __init__(self, valid: Cursor) -> None:
        super().__init__("the cursor is no longer valid")
        self.valid = valid


Recorder = Callable[[Published], None]
"""Takes an event and sees to it that ``Bus.deliver`` is called with it later, in order."""


class Bus:
    """Numbers events and hands them out. Everything here runs on the event loop's thread."""

    def __init__(
        self,
        *,
        epoch: str,
        last_seq: int,
        now: Callable[[], str],
        ring: int = RING_EVENTS,
    ) -> None:
        self._epoch = epoch
        self._seq = last_seq
        self._delivered = last_seq
        self._now = now
        self._ring: deque[Published] = deque(maxlen=ring)
        self._news = anyio.Event()
        self.published: Counter[str] = Counter()
        """How many events of each kind there were since this daemon started."""
        self._recorder: Recorder = lambda published: self.deliver((published,))
        self._encoder = msgspec.json.Encoder()

    def attach(self, recorder: Recorder) -> None:
        """From now on events go to ``recorder`` first."""
        self._recorder = recorder

    @property
    def cursor(self) -> Cursor:
        """The newest delivered event."""
        return Cursor(epoch=self._epoch, seq=self._delivered)

    def publish(self, event: Event) -> Stamp:
        """Number an event and send it on its way. Never waits."""
        stamp = Stamp(seq=self._seq + 1, epoch=self._epoch, at=self._now(), node=SELF)
        encoded = flat(self._encoder, stamp, event)
        if len(encoded) > LINE_BYTES:
            encoded = shortened(self._encoder, encoded)
        self._seq = stamp.seq
        self.published[str(event.__struct_config__.tag)] += 1
        self._recorder(Published(stamp, event, encoded))
        return stamp

    def deliver(self, events: tuple[Published, ...]) -> None:
        """Make events visible, oldest first, each exactly once and in the order of numbers."""
        if not events:
            return
        self._ring.extend(events)
        self._delivered = events[-1].stamp.seq
        self._news.set()
        self._news = anyio.Event()

    def restore(self, events: tuple[Published, ...]) -> None:
        """Put events of an earlier daemon's life into the ring, so that cursors outlive it."""
        self._ring.extend(events)

    @property
    def history(self) -> tuple[Published, ...]:
        """What the ring holds, oldest first."""
        return tuple(self._ring)

    def newest(self, count: int, wants: Callable[[Published], bool]) -> tuple[Published, ...]:
        """The newest ``count`` that are wanted, of those that the ring holds; oldest first."""
        return tuple(islice(filter(wants, reversed(self._ring)), count))[::-1]

    async def settled(self) -> None:
        """Return once everything published so far has been delivered, and so is written down."""
        wanted = self._seq
        while self._delivered < wanted:
            await self._news.wait()

    def subscribe(self, after: Cursor | None = None) -> "Subscription":
        """Start after a place, or after the newest event. Raises ``CursorExpired``."""
        if after is None:
            return Subscription(self, self._delivered)
        if after.epoch != self._epoch or not self._oldest - 1 <= after.seq <= self._delivered:
            raise CursorExpired(self.cursor)
        return Subscription(self, after.seq)

    @property
    def _oldest(self) -> int:
        return self._ring[0].stamp.seq if self._ring else self._delivered + 1

    def _since(self, seq: int, limit: int) -> tuple[Published, ...]:
        if seq + 1 < self._oldest:
            raise CursorExpired(self.cursor)
        behind = self._delivered - seq
        if behind <= len(self._ring) // 2:
            newest = tuple(islice(reversed(self._ring), behind))
            return newest[::-1][:limit]
        return tuple(islice(self._ring, len(self._ring) - behind, None))[:limit]


class Subscription:
    """One reader's place in the ring."""

    def __init__(self, bus: Bus, seq: int) -> None:
        self._bus = bus
        self._seq = seq

    @property
    def cursor(self) -> Cursor:
        return Cursor(epoch=self._bus.cursor.epoch, seq=self._seq)

    async def next(self, limit: int = 256) -> tuple[Published, ...]:
        """The next events, at least one, at most ``limit``. Raises ``CursorExpired``."""
        while True:
            if events := self._bus._since(self._seq, limit):
                self._seq = events[-1].stamp.seq
                return events
            await self._bus._news.wait()


def flat(encoder: msgspec.json.Encoder, stamp: Stamp, event: Event) -> bytes:
    """Stamp and body as the one object of the wire, the stamp's members first."""
    return encoder.encode(stamp)[:-1] + b"," + encoder.encode(event)[1:]


def shortened(encoder: msgspec.json.Encoder, encoded: bytes) -> bytes:
    """An event that is too long for a line, cut to fit and marked ``truncated``.

    Who makes events keeps them short; this is for what they did not think of. The ends of long
    texts are kept, for that is where logs and paths say most, and the beginnings of long lists.
    """
    tree = msgspec.json.decode(encoded)
    limit = LINE_BYTES // 2
    while len(encoded) > LINE_BYTES and limit:
        encoded = encoder.encode(_cut(tree, limit) | {"truncated": True})
        limit //= 2
    return encoded


def _cut(value: Any, limit: int) -> Any:
    match value:
        case str() if len(value) > limit:
            return "…" + value[len(value) - limit :]
        case list():
            return [_cut(item, limit) for item in value[: max(1, limit // 32)]]
        case dict():
            return {key: _cut(item, limit) for key, item in value.items()}
        case _:
            return value
