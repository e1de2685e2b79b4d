"""Full garbage collections of this interpreter, which hold its event loop while they last.

They explain a tail: whoever is served during one waits for the whole of it.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OLDEST = 2


class Pauses:
    def __init__(self) -> None:
        self.count = 0
        self.longest_ms = 0.0
        self._began = 0.0

    def note(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != OLDEST:
            return
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.count += 1
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - self._began) * 1_000)

    def text(self) -> list[str]:
        """One note for a row, or none."""
        if not self.count:
            return []
        return [f"full collections on the loop: {self.count}, the longest {self.longest_ms:.0f} ms"]


@contextmanager
def pauses() -> Iterator[Pauses]:
    one = Pauses()
    gc.callbacks.append(one.note)
    try:
        yield one
    finally:
        gc.callbacks.remove(one.note)
