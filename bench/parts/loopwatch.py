"""How long an event loop is away from its clients, from within and from without.

From within: a selector that notes the time between two of its calls, which is the length of a turn
of the loop, exactly. From without: a metronome beside the bench sends the time every millisecond,
and the loop notes how late each beat is heard, waiting for the interpreter's lock included. Beats
alone would find a block of 0.4 ms in four of ten cases only.
"""

import asyncio
import selectors
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from bench.parts.helpers import beside


@dataclass(frozen=True, slots=True)
class Worst:
    """Of a window, in milliseconds."""

    turn: float
    beat: float


class TurnSelector(selectors.DefaultSelector):
    """Notes the longest time that the loop spent outside of it."""

    longest_ns = 0
    _left = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._left:
            self.longest_ns = max(self.longest_ns, time.perf_counter_ns() - self._left)
        ready = super().select(timeout)
        self._left = time.perf_counter_ns()
        return ready


class LoopWatch:
    """Of the loop that it makes. ``hearing`` must be entered on it before the first window."""

    def __init__(self) -> None:
        self._selector = TurnSelector()
        self._beat_ns = 0

    def make_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(self._selector)

    @asynccontextmanager
    async def hearing(self, path: Path) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as beats:
            beats.bind(str(path))
            beats.setblocking(False)
            loop.add_reader(beats, self._hear, beats)
            try:
                with beside("metronome.py", str(path)):
                    await anyio.sleep(0.2)
                    yield
            finally:
                loop.remove_reader(beats)

    async def worst(self, window_s: float, during: Callable[[], Awaitable[None]]) -> Worst:
        """What the worst was while ``during`` ran, and until the window's end."""
        await anyio.sleep(0.002)
        self._beat_ns = self._selector.longest_ns = 0
        ends = time.monotonic() + window_s
        await during()
        await anyio.sleep(max(0.002, ends - time.monotonic()))
        return Worst(self._selector.longest_ns / 1e6, self._beat_ns / 1e6)

    def _hear(self, beats: socket.socket) -> None:
        try:
            while True:
                sent = int(beats.recv(32))
                self._beat_ns = max(self._beat_ns, time.monotonic_ns() - sent)
        except BlockingIOError:
            return
