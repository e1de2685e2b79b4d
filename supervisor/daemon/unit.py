"""The daemon as a unit of systemd: what it was handed, and what it says of itself.

Where systemd did not start it, everything here is there and does nothing.
"""

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress

import anyio
import structlog

from supervisor.bus import Bus, CursorExpired
from supervisor.daemon.activation import Activation
from supervisor.daemon.notify import FdStore, Notifier
from supervisor.daemon.watchdog import STALL_S, JournalLag, beat, missing_thread
from supervisor.rpc.socket import Listener, SocketError, adopt

STATUS_PAUSE_S = 1.0
"""At least, between two of them."""
RECHECK_S = 10.0
RETRY_S = 0.5

log = structlog.get_logger(__name__)


class Unit:
    """Wired once by the composition root. ``fds`` is for whoever holds engines."""

    def __init__(self, activation: Activation) -> None:
        self._notifier = Notifier(activation.notify_socket)
        self._watchdog_s = activation.watchdog_s
        self._sockets, stored = _sort(activation.fds)
        self.fds = FdStore(self._notifier, stored)
        self.reloading = self._notifier.reloading

    def listener(self) -> Listener | None:
        """The socket that systemd keeps for us, if it does. Raises ``SocketError``."""
        if len(self._sockets) > 1:
            raise SocketError(f"systemd handed over {len(self._sockets)} sockets; one is served")
        return adopt(self._sockets.pop()) if self._sockets else None

    async def beat(self) -> None:
        """Feed the watchdog, where there is one."""
        if self._watchdog_s is not None:
            await beat(self._notifier.send, self._watchdog_s, lambda: missing_thread("journal"))

    async def report(
        self, bus: Bus, lag: JournalLag, counts: Callable[[], Mapping[str, int]]
    ) -> None:
        """Say that we are ready, then how many instances there are whenever that changes.

        To be started when the socket answers.
        """
        if not self._notifier.listening:
            return
        news = bus.subscribe()
        said = describe(counts(), 0)
        while not self._notifier.send("READY=1", f"STATUS={said}"):  # noqa: ASYNC110
            await anyio.sleep(RETRY_S)
        while True:
            await anyio.sleep(STATUS_PAUSE_S)
            with anyio.move_on_after(RECHECK_S), suppress(CursorExpired):
                await news.next()
            news = bus.subscribe()
            status = describe(counts(), lag.seconds())
            if status != said and self._notifier.send(f"STATUS={status}"):
                said = status

    def stopping(self, left_running: int) -> None:
        self._notifier.send("STOPPING=1", f"STATUS=Leaving; engines left running: {left_running}")


def describe(counts: Mapping[str, int], journal_lag_s: float) -> str:
    """One line for ``systemctl status``."""
    total = sum(counts.values())
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    text = f"{total} instance{'' if total == 1 else 's'}" + (f": {states}" if states else "")
    return text if journal_lag_s < STALL_S else f"{text}; the journal does not get on"


def _sort(fds: Mapping[str, tuple[int, ...]]) -> tuple[list[int], dict[str, int]]:
    """Sockets to listen on, and the rest, which comes out of the store."""
    sockets: list[int] = []
    stored: dict[str, int] = {}
    for name, fd in ((name, fd) for name, same in fds.items() for fd in same):
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            sockets.append(fd)
        elif name in stored:
            os.close(fd)
        else:
            stored[name] = fd
    return sockets, stored
