"""The end of an engine's log, as it goes into a failure."""

import os

import anyio
import anyio.to_thread

READ_SECONDS = 0.5
"""A log on a hung file system must not hold back the news of an exit."""


async def read_tail(path: str | None, limit: int) -> str:
    """The last ``limit`` bytes from a line's start on, decoded with replacement.

    Empty where there is no log, or where it cannot be read in time.
    """
    if path is None:
        return ""
    with anyio.move_on_after(READ_SECONDS):
        return await anyio.to_thread.run_sync(_tail, path, limit, abandon_on_cancel=True)
    return ""


def _tail(path: str, limit: int) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        size = os.fstat(fd).st_size
        start = max(0, size - limit)
        data = os.pread(fd, limit, start)
    except OSError:
        return ""
    finally:
        os.close(fd)
    if start:
        _, newline, rest = data.partition(b"\n")
        data = rest if newline else data
    return data.decode(errors="replace")
