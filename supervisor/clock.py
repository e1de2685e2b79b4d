"""Time as a thing that is passed in, so that a test can bend it.

Durations and deadlines go by ``monotonic_ns`` (``CLOCK_MONOTONIC``); the wall clock is for
people. ``boot_id`` says which boot a monotonic reading belongs to.
"""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Two readings that must never be mixed, and the boot that one of them counts from."""

    @property
    def boot_id(self) -> str: ...

    def monotonic_ns(self) -> int: ...

    def wall(self) -> datetime: ...


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall(self) -> datetime:
        return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """UTC with milliseconds and a ``Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rfc3339_in(clock: Clock, ms: int) -> str:
    """The wall time ``ms`` from now."""
    return rfc3339(clock.wall() + timedelta(milliseconds=ms))
