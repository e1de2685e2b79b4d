"""A log as it grows: what comes behind a place, for as long as somebody wants it."""

import errno
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import anyio

from supervisor.logs.reading import Chunk, read_from
from supervisor.logs.text import Mask, as_it_is
from supervisor.patience import Overdue, Patience

PERIOD_S = 0.2
IDLE_PERIODS = 5
"""After so long without a byte, text that no line end follows is shown as it is."""
HANG_S = 30.0
_threads = Patience("reading new lines of logs", 8)


@dataclass(slots=True)
class Follower:
    """One reader's place in one log, valid across rotations and in another daemon's life."""

    path: str
    cursor: int
    _drained: tuple[int, int, int] | None = None
    """What the file was like when nothing more was to be had of it."""

    async def read(self, mask: Mask = as_it_is, *, unfinished: bool = False) -> Chunk | None:
        """What is new; None costs no more than a ``stat``. Raises ``OSError``."""
        try:
            return await _threads.run(self._read, mask, unfinished, within_s=HANG_S)
        except Overdue as error:
            raise OSError(errno.ETIMEDOUT, str(error)) from None

    def _read(self, mask: Mask, unfinished: bool) -> Chunk | None:
        mark = _mark(self.path)
        if mark == self._drained and not unfinished:
            return None
        chunk = read_from(self.path, self.cursor, mask, unfinished=unfinished)
        if chunk.cursor == self.cursor and not chunk.lines:
            self._drained = mark
            return None
        self.cursor = chunk.cursor
        return chunk


async def follow(
    path: str, cursor: int, mask: Mask = as_it_is, *, over: Callable[[], bool] = lambda: False
) -> AsyncIterator[Chunk]:
    """What comes behind ``cursor``, across rotations, until ``over`` says that no more will come.

    ``over`` is asked before each read: what was written before it said so is still given.
    Raises ``OSError``.
    """
    follower, idle = Follower(path, cursor), 0
    while True:
        last = over()
        chunk = await follower.read(mask, unfinished=last or idle == IDLE_PERIODS)
        if chunk is not None:
            idle = 0
            if chunk.lines:
                yield chunk
        elif last:
            return
        else:
            idle += 1
            await anyio.sleep(PERIOD_S)


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_size, stat.st_ctime_ns
