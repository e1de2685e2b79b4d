"""The record store, as the daemon's tasks use it: every change is awaited, and in order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import anyio

from supervisor.contracts.instance import InstanceRecord, Tombstone
from supervisor.instances.durable import Step, no_step, unlink_durably
from supervisor.instances.files import RecordFiles
from supervisor.instances.loading import Loaded, Quarantined, load

T = TypeVar("T")

_THREADS: Final = 4
"""Of our own, so that a file system that hangs elsewhere holds up no record."""


class RecordStore:
    """One JSON file per instance, and what the design promises about them.

    Changes of one name take effect in the order in which they were asked for; those of different
    names do not wait for one another. When a call returns, or raises, the disk is no longer being
    changed by it: one that is cancelled has either not begun, or has been finished. All of them
    raise ``StoreError``.
    """

    def __init__(
        self, state_dir: str | Path, *, tombstones: int = 200, step: Step = no_step
    ) -> None:
        self._files = RecordFiles(Path(state_dir), tombstones=tombstones, step=step)
        self._step = step
        self._locks: dict[str, anyio.Lock] = {}
        self._threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="records")

    def load(self) -> Loaded:
        """Read the state directory, once, before the first change. Blocking."""
        return load(self._files)

    async def write(self, record: InstanceRecord) -> None:
        """Make this the record of its name. The tombstone of an earlier launch goes."""
        await self._change(record.name, lambda: self._files.write(record))

    async def write_if_missing(self, record: InstanceRecord) -> bool:
        """Put a record back that somebody took away; whether that was so. A later write of the same
        name is never undone by it.
        """
        return await self._change(record.name, lambda: self._files.write_if_missing(record))

    async def missing(self) -> tuple[str, ...]:
        """The names whose records somebody may have taken away."""
        return await self._settled(self._files.missing)

    def holds(self, name: str) -> bool:
        """Whether a record of this name is still there. After a failed ``bury`` it may be."""
        return self._files.holds(name)

    async def remove(self, name: str) -> None:
        """Remove a record; nothing of its launch can be written afterwards."""
        await self._change(name, lambda: self._files.remove(name))

    async def bury(self, tombstone: Tombstone) -> None:
        """Replace a record by its tombstone. The record is gone even if this raises for the
        tombstone's sake; of a name that was launched again it does nothing.
        """
        await self._change(tombstone.record.name, lambda: self._files.bury(tombstone))

    async def discard(self, item: Quarantined) -> None:
        """Delete from quarantine what a person has released. A folder must be empty."""
        await self._change(item.name, lambda: unlink_durably(item.path, self._step))

    async def _change(self, name: str, work: Callable[[], T]) -> T:
        async with self._turn(name):
            return await self._settled(work)

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(name, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._locks.pop(name, None)

    async def _settled(self, work: Callable[[], T]) -> T:
        """Run in a thread and come back only when it has ended.

        anyio's own threads would let go of the work when asyncio itself cancels the task, or shuts
        the loop down and cancels them all; a future of an executor is no task, and is waited for.
        """
        cancelled: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
            while not running.done():
                try:
                    await asyncio.wait([running])
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled is not None:
            raise cancelled from running.exception()
        return running.result()
