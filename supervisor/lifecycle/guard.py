"""House-keeping that must go on: a defect in it is news, and ends neither the daemon nor others."""

import traceback
from collections.abc import Awaitable, Callable

import anyio
import structlog

from supervisor.contracts.event import TaskCrashed
from supervisor.lifecycle.house import House

PAUSES_S = (0.05, 0.5, 5.0, 30.0)
"""Between a crash and the next run; the last one repeats."""
LONG_RUN_S = 300.0
"""Who ran for this long before the crash begins again with the shortest pause."""

log = structlog.get_logger(__name__)


async def keep_going(
    house: House,
    task: str,
    run: Callable[[], Awaitable[object]],
    *,
    instance: str | None = None,
    nonce: Callable[[], str] | None = None,
    mask: Callable[[str], str] = str,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Run it until it returns. After a crash say so, call ``between``, pause, and run it again."""
    crashes = 0
    while True:
        began = house.clock.monotonic_ns()
        try:
            await run()
            return
        except Exception as error:
            if house.clock.monotonic_ns() - began > LONG_RUN_S * 1e9:
                crashes = 0
            trace = mask("".join(traceback.format_exception(error)))
            log.error("task crashed", task=task, exception=trace)
            crashed = TaskCrashed(task=task, error=mask(f"{type(error).__name__}: {error}")[:2_000])
            if instance is not None and nonce is not None:
                crashed = TaskCrashed(
                    task=crashed.task, error=crashed.error, instance=instance, nonce=nonce()
                )
            house.publish(crashed)
            between()
            await anyio.sleep(PAUSES_S[min(crashes, len(PAUSES_S) - 1)])
            crashes += 1
