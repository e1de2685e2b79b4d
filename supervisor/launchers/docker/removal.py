"""Removing a container, until its name can be had again."""

import anyio

from supervisor.launchers.docker.engine import Engine, EngineRefused

LOOK_S = 0.05
GONE_S = 60.0
"""Removing the layers of a container that wrote much takes a disk a while."""
REFUSED_S = 3.0
"""An engine that says no goes on saying it, for the most part."""


async def remove(
    engine: Engine, container: str, of: str | None = None, within_s: float = GONE_S
) -> bool:
    """Whether it is gone, which the engine's own answer to the removal does not say yet.

    "Gone already" and "being removed" are no errors. Raises ``EngineDown``, also where another
    engine answers than ``of``, and ``EngineRefused`` where the engine goes on refusing.
    """
    refused: EngineRefused | None = None
    pause = LOOK_S
    refuses_s = anyio.current_time() + REFUSED_S
    with anyio.move_on_after(within_s):
        while True:
            try:
                await engine.remove(container)
                refused = None
            except EngineRefused as no:
                refused = None if no.missing or no.conflict else no
            if await engine.inspect(container, of) is None:
                return True
            if refused is not None and anyio.current_time() > refuses_s:
                break
            await anyio.sleep(pause)
            pause = min(pause * 1.5, 1.0)
    if refused is not None:
        raise refused
    return False
