"""The container engine's stream of events, for the containers of one supervisor.

It is a hint and no more: who is named in it is looked at. When the stream had broken off, anything
may have happened to anybody, so all are looked at.
"""

import json
from collections.abc import Callable
from typing import Any

import anyio

from supervisor.launchers.docker.engine import Engine, EngineDown, EngineRefused
from supervisor.launchers.docker.labels import SUPERVISOR
from supervisor.launchers.docker.watch import PAUSES_S

_NEWS = ("die", "oom", "destroy", "pause", "unpause", "kill", "start")


async def follow_news(
    engine: Engine, supervisor: str, of: Callable[[str, str], None], of_all: Callable[[], None]
) -> None:
    """Until cancelled: ``of`` gets the id of a container and what happened to it."""
    filters = {
        "type": ["container"],
        "label": [f"{SUPERVISOR}={supervisor}"],
        "event": list(_NEWS),
    }
    failures = 0
    while True:
        try:
            async with engine.stream("GET", "events", {"filters": json.dumps(filters)}) as response:
                failures = 0
                of_all()
                async for event in engine.lines(response):
                    if container := _subject(event):
                        of(container, str(event.get("Action")))
        except (EngineDown, EngineRefused):
            failures += 1
        await anyio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])


def _subject(event: dict[str, Any]) -> str | None:
    actor = event.get("Actor")
    found = actor.get("ID") if isinstance(actor, dict) else None
    return found if isinstance(found, str) else None
