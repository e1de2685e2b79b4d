"""Blocking calls that may never come back: a deadline for who waits, a bound for what hangs.

A thread that is stuck in the kernel cannot be ended. So it is left behind, and what has to hold
is that they are few: a thread counts for as long as it works, whoever has given up on it. anyio's
limiters count who waits instead, and give a cancelled one's place to the next thread.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")


class Overdue(Exception):
    """It did not come back in time. Its thread is left behind until it does."""


class AllHung(Overdue):
    """It was not begun, for no thread was free: as many hang as may."""


class Patience:
    """Threads of one purpose, ``most`` of them, that start when they are needed."""

    def __init__(self, what: str, most: int) -> None:
        """``what`` is for the errors: "reading models"."""
        self._what = what
        self._most: Final = most
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._threads = ThreadPoolExecutor(self._most, thread_name_prefix=self._what)
        self._overdue = set[Future[Any]]()

    @property
    def hung(self) -> int:
        """Threads that did not come back in time, and have not yet."""
        return len(self._overdue)

    async def run(
        self,
        work: Callable[..., T],
        *args: object,
        within_s: float,
        late: Callable[[T], object] = lambda _: None,
    ) -> T:
        """What ``work`` returns or raises. Raises ``Overdue``; waiting for a thread counts too.

        A call that is cancelled before it has begun is never begun. What one returns that nobody
        waits for any more goes to ``late``, in its thread.
        """
        if self._pid != os.getpid():
            self._begin()  # threads do not live on in a fork, and the pool would wait for its own
        if self.hung >= self._most:
            raise AllHung(f"all {self._most} threads for {self._what} hang")
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        running = self._threads.submit(work, *args)
        running.add_done_callback(lambda _: _wake(loop, over))
        timer = loop.call_later(within_s, _set, over)
        try:
            await over
        except asyncio.CancelledError:
            running.cancel()
            running.add_done_callback(lambda done: _hand(done, late))
            raise
        finally:
            timer.cancel()
        if running.done():
            return running.result()
        if running.cancel():
            raise AllHung(f"all {self._most} threads for {self._what} are taken")
        self._overdue.add(running)
        running.add_done_callback(lambda done: _hand(done, late))
        running.add_done_callback(self._overdue.discard)
        raise Overdue(f"{self._what} took longer than {within_s:g} s")


def _wake(loop: asyncio.AbstractEventLoop, over: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # a loop that is closed has nobody who waits
        loop.call_soon_threadsafe(_set, over)


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _hand(done: Future[T], late: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        late(done.result())
