"""One hop to a worker thread for many files, although any of them may lie on a mount that hangs.

To give each file a thread of its own would cost more than the work. So one thread goes from file to
file; where it comes to a stop it is left behind with that one, and another one does the rest.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

HANG_S = 1.0
PER_ITEM_S = 0.01
"""A round of many files takes milliseconds, and a rotation of one a part of a second."""
MOST_HUNG = 16

K = TypeVar("K")
V = TypeVar("V")


class _Round(Generic[K, V]):
    """The work of one thread, which can be left behind where it hangs."""

    def __init__(
        self, items: Sequence[K], work: Callable[[K], V], back: Callable[[K], object]
    ) -> None:
        """``back`` is told of the item that it was left behind with, once that is done."""
        self._items = items
        self._work = work
        self._back: Callable[[K], object] = back
        self._done: list[V] = []
        self._left_behind = False
        self._lock = threading.Lock()

    def run(self) -> None:
        for item in self._items:
            try:
                came = self._work(item)
            except BaseException:
                self._go_on(item)
                raise
            if not self._go_on(item, came):
                return

    def _go_on(self, item: K, *came: V) -> bool:
        with self._lock:
            self._done += came
            if self._left_behind:
                self._back(item)
            return not self._left_behind

    def leave(self, hangs: Callable[[K], object]) -> list[V]:
        """What was done so far; ``hangs`` is told of the item that was not, if there is one."""
        with self._lock:
            self._left_behind = len(self._done) < len(self._items)
            if self._left_behind:
                hangs(self._items[len(self._done)])
            return [*self._done]


class Rounds:
    """Used by one task. An item that hangs is left out until its thread has come back."""

    def __init__(self) -> None:
        self._hung: dict[int, object] = {}
        """By identity, which nothing else has as long as the item is here."""
        self._threads = anyio.CapacityLimiter(MOST_HUNG + 1)

    async def go(self, items: Iterable[K], work: Callable[[K], V]) -> list[tuple[K, V]]:
        """``work`` on each item, with what came of it; nothing came of those that hang."""
        rest, found = [it for it in items if id(it) not in self._hung], list[tuple[K, V]]()
        while rest and len(self._hung) < MOST_HUNG:
            of_this = _Round(rest, work, lambda item: self._hung.pop(id(item), None))
            with anyio.move_on_after(HANG_S + PER_ITEM_S * len(rest)):
                await anyio.to_thread.run_sync(
                    of_this.run, abandon_on_cancel=True, limiter=self._threads
                )
            came = of_this.leave(lambda item: self._hung.update({id(item): item}))
            found += zip(rest, came, strict=False)
            rest = rest[len(came) + 1 :]
        return found
