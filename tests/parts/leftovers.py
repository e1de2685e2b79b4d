"""Processes that tests started and did not end, known by the run's folder on their command line."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

DYING_S = 5.0


def end_leftovers(folder: Path) -> list[str]:
    """Kill them, and say what they were. Who is on the way out gets some seconds for that."""
    deadline = time.monotonic() + DYING_S
    while (left := _running(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"{pid}: {words}" for pid, words in left.items()]


def _running(folder: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != os.getpid():
            with suppress(OSError):
                words = Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if f"{folder}/" in words:
                    found[int(entry)] = words
    return found
