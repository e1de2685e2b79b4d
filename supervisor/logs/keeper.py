"""All engines' logs, looked after by one task: kept within bounds, and read while engines start.

A look at all of them is one hop to a worker thread: a ``stat`` a log, and work on those alone that
have grown. Once no engine starts it is taken every few seconds.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import structlog

from supervisor.contracts.config import LogsConfig
from supervisor.logs.growth import Grown, Growth, Sift
from supervisor.logs.rotation import Rotation, rotate
from supervisor.logs.rounds import HANG_S, Rounds
from supervisor.patience import Overdue, Patience

LOOK_S = 0.25
"""Between two looks at the logs of engines that start."""
SIZE_S = 3.0
"""Between two looks at how large all of them are."""
_first_looks = Patience("reading new logs", 16)

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Kept:
    path: str
    tell: Callable[[Rotation], None]
    fresh: bool = True
    troubled: bool = False

    def tend(self, limits: LogsConfig) -> Rotation | None:
        """None where there is nothing to tell; a trouble is told once. Blocks."""
        try:
            if not self.fresh and os.stat(self.path).st_size <= limits.max_bytes:
                return None
            done = rotate(self.path, limits)
        except FileNotFoundError:
            return None
        except OSError as error:
            done = Rotation(trouble=f"{self.path}: {error.strerror}")
        known, self.troubled = self.troubled, done.trouble is not None
        self.fresh = False
        told = done.archived or done.may_have_lost or (done.trouble and not known)
        return done if told else None


@dataclass(slots=True, eq=False)
class _Reading:
    growth: Growth[Any]
    tell: Callable[[Grown[Any]], None]
    slow: bool


@dataclass(slots=True)
class LogKeeper:
    """``run`` must go on for as long as logs are to be looked after."""

    limits: LogsConfig
    look_s: float = LOOK_S
    size_s: float = SIZE_S
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _readings: list[_Reading] = field(default_factory=list)
    _news: anyio.Event = field(default_factory=anyio.Event)
    _rounds: Rounds = field(default_factory=Rounds)

    def keep(self, path: str, tell: Callable[[Rotation], None]) -> None:
        """Keep a log within bounds from now on, and ``tell`` what had to be done to it.

        The first look is at once: it finishes what an earlier daemon was at when it died.
        """
        self._kept[path] = _Kept(path, tell)
        self._wake()

    def leave(self, path: str) -> None:
        """Look after a log no longer; it stays as it is."""
        self._kept.pop(path, None)

    @asynccontextmanager
    async def reading(
        self,
        path: str,
        cursor: int,
        sift: Sift[T],
        tell: Callable[[Grown[T]], None],
        *,
        slow: bool = False,
    ) -> AsyncIterator[None]:
        """Inside, ``tell`` hears several times a second of what came behind ``cursor``, if any;
        with ``slow`` every few seconds.

        It gets what ``sift`` makes of the lines. It is called on the loop and must not wait; the
        first time it has been called, if it had to be, when this is entered.
        """
        reading = _Reading(Growth(path, cursor, sift), tell, slow)
        first: Grown[T] | None = None
        with suppress(Overdue):
            first = await _first_looks.run(_quietly, reading.growth, within_s=HANG_S)
        if first is not None:
            _call(tell, first)
        self._readings.append(reading)
        self._wake()
        try:
            yield
        finally:
            self._readings.remove(reading)

    async def run(self) -> None:
        """Until cancelled. What goes wrong with one log is told and touches no other."""
        due = anyio.current_time()
        while True:
            now = anyio.current_time()
            await self._tend([kept for kept in self._kept.values() if kept.fresh or now >= due])
            slow_too = now >= due
            if slow_too:
                due = now + self.size_s
            await self._look(tuple(it for it in self._readings if slow_too or not it.slow))
            hurry = any(not it.slow for it in self._readings)
            pause = min(self.look_s, due - now) if hurry else due - now
            with anyio.move_on_after(pause):
                await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _tend(self, logs: list[_Kept]) -> None:
        done = await self._rounds.go(logs, lambda kept: kept.tend(self.limits))
        for kept, rotation in done:
            if rotation is not None and self._kept.get(kept.path) is kept:
                _call(kept.tell, rotation)

    async def _look(self, readings: tuple[_Reading, ...]) -> None:
        for reading, found in await self._rounds.go(readings, lambda it: _quietly(it.growth)):
            # It may have been left while the thread was at it.
            if found is not None and reading in self._readings:
                _call(reading.tell, found)


def _quietly(growth: Growth[Any]) -> Grown[Any] | None:
    try:
        return growth.look()
    except OSError:
        return None


def _call(tell: Callable[[T], None], what: T) -> None:
    try:
        tell(what)
    except Exception:
        log.exception("what a log told was not taken well")
