"""Signs of life for systemd's watchdog, given by the event loop itself and so only while it turns.

Besides the loop the daemon needs its journal's thread: an event goes to subscribers after its line
was written. Two troubles of it differ. A thread that is *gone* was ended by a defect, and a new
daemon is the remedy; so then the watchdog is no longer fed. A thread that *hangs* hangs in a disk,
and there nothing is gained by an end: a process in the kernel cannot be killed, and would keep the
state directory locked against the next daemon, while this one still supervises well without the
disk. That is said in the log and the unit's status instead.
"""

import threading
import time
from collections.abc import Callable

import anyio
import structlog

from supervisor.bus import Bus, Published, Recorder

BEATS = 3
"""In one interval of the watchdog; two is what systemd asks for."""
STALL_S = 10.0
"""Without a written line from here on the journal counts as stuck."""

log = structlog.get_logger(__name__)


async def beat(
    send: Callable[[str], object], interval_s: float, ailment: Callable[[], str | None]
) -> None:
    """Feed the watchdog for as long as nothing ails; an ``ailment`` says what does."""
    told: str | None = None
    while True:
        ails = ailment()
        if ails is None:
            send("WATCHDOG=1")
        elif ails != told:
            log.error("the watchdog is not fed any more", reason=ails)
        told = ails
        await anyio.sleep(interval_s / BEATS)


def missing_thread(name: str) -> str | None:
    """An ailment: no living thread has this name."""
    if any(thread.name == name for thread in threading.enumerate()):
        return None
    return f"the thread {name!r} is gone"


class JournalLag:
    """How long the journal has owed the bus an event without writing any."""

    def __init__(self, bus: Bus, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._monotonic = monotonic
        self._recorded = self._delivered = bus.cursor.seq
        self._since = monotonic()
        self._stuck = False

    def watched(self, record: Recorder) -> Recorder:
        """The same recorder, with an eye on what it is given."""

        def watching(published: Published) -> None:
            if self._bus.cursor.seq >= self._recorded:  # until now it owed nothing
                self._since = self._monotonic()
            self._recorded = published.stamp.seq
            record(published)

        return watching

    def seconds(self) -> float:
        """As it looks from one call to the next. Getting stuck is logged, and so is its end."""
        now, delivered = self._monotonic(), self._bus.cursor.seq
        if delivered != self._delivered or delivered >= self._recorded:
            self._delivered, self._since = delivered, now
        lag = now - self._since
        if (lag >= STALL_S) != self._stuck:
            self._stuck = not self._stuck
            if self._stuck:
                log.warning("the journal does not get on", waiting=self._recorded - delivered)
            else:
                log.info("the journal gets on again")
        return lag
