"""The end of an engine's log, as it goes into a failure."""

import anyio
import anyio.to_thread

from supervisor.logs.reading import tail_text

READ_SECONDS = 0.5
"""A log on a hung file system must not hold back the news of an exit."""


async def read_tail(path: str | None, limit: int, threads: anyio.CapacityLimiter) -> str:
    """The lines within the last ``limit`` bytes. Empty where they cannot be had in time."""
    if path is None:
        return ""
    with anyio.move_on_after(READ_SECONDS):
        return await anyio.to_thread.run_sync(
            tail_text, path, limit, abandon_on_cancel=True, limiter=threads
        )
    return ""
