"""A day in a millisecond: an event loop whose clock runs only when there is nothing else to do.

Whatever is ready is run; then time jumps to the next timer. Worker threads would go on in real
time, so their work is done at once, on the loop's own thread.
"""

import asyncio
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import anyio.to_thread
import pytest

from supervisor.patience import Patience

T = TypeVar("T")

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing: the time that it was to wait is added to the loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        assert ready or timeout is not None, "everybody waits for something that cannot come"
        return ready


class TimelessLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = _Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class TimelessClock:
    """Both readings go with the loop; the wall can be stepped besides."""

    boot_id = "0b00710b-0071-4b00-8b00-0b00710b0071"

    def __init__(self, loop: TimelessLoop) -> None:
        self._loop = loop
        self.step = timedelta()

    def monotonic_ns(self) -> int:
        return 10**15 + round(self._loop.time() * 1e9)

    def wall(self) -> datetime:
        return BEGINNING + timedelta(seconds=self._loop.time()) + self.step


@contextmanager
def timeless() -> Iterator[TimelessLoop]:
    """The loop, with anyio's worker threads and ours done away with."""

    async def at_once(func: Callable[..., T], *args: Any, **_: Any) -> T:
        return func(*args)

    async def patiently(_: Patience, func: Callable[..., T], *args: Any, **__: Any) -> T:
        return func(*args)

    loop = TimelessLoop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio.to_thread, "run_sync", at_once)
        patch.setattr(Patience, "run", patiently)
        try:
            yield loop
        finally:
            loop.close()
