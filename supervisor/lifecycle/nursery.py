"""The tasks of this daemon's life: one for each instance, and a few that keep house for all."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from supervisor.lifecycle.guard import keep_going
from supervisor.lifecycle.house import House
from supervisor.lifecycle.instance import Instance


class Nursery:
    """A defect in one task is news, and touches no other. Being cancelled ends no engine."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._tasks: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Tasks can be started for as long as this is entered, and are cancelled with it."""
        async with anyio.create_task_group() as self._tasks:
            yield

    def keep(self, task: str, run: Callable[[], Awaitable[object]]) -> None:
        self._open.start_soon(keep_going, self._house, task, run, name=task)

    def start(self, instance: Instance) -> None:
        self._open.start_soon(self._live, instance, name=f"instance:{instance.name}")

    @property
    def _open(self) -> anyio.abc.TaskGroup:
        assert self._tasks is not None, "serve() runs first"
        return self._tasks

    async def _live(self, instance: Instance) -> None:
        try:
            await keep_going(
                self._house,
                f"instance:{instance.name}",
                instance.run,
                instance=instance.name,
                nonce=lambda: instance.record.nonce,
                mask=lambda text: instance.redactor.text(text),  # noqa: PLW0108 - it changes
                between=instance.rewind,
            )
        except BaseException:
            instance.let_go()
            raise
