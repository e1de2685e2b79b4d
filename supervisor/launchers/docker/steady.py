"""Work that goes on after a defect of ours in it, and takes no other work down with itself."""

from collections.abc import Awaitable, Callable

import anyio
import structlog

PAUSES_S = (0.1, 1.0, 10.0)
"""Between a failure and the next run; the last one repeats."""

log = structlog.get_logger(__name__)


async def steadily(what: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run it until it returns; what it fails with is told, and then it is run again."""
    failures = 0
    while True:
        try:
            return await run()
        except Exception:
            log.exception("failed, and goes on", what=what)
        await anyio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
        failures += 1
