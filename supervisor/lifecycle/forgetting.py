"""The logs of instances that are forgotten go, unless somebody else has the name by then."""

from collections.abc import Iterable
from contextlib import suppress

import anyio
import anyio.to_thread

from supervisor.lifecycle.logfolders import forget_logs
from supervisor.lifecycle.roster import Roster


class Forgetting:
    def __init__(self, log_dir: str, roster: Roster) -> None:
        self._log_dir = log_dir
        self._roster = roster
        self._names: list[str] = []
        self._news = anyio.Event()

    def forget(self, names: Iterable[str]) -> None:
        self._names += names
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._names:
                name = self._names.pop(0)
                if self._roster.remembers(name):
                    continue
                with suppress(OSError):  # what is left is in nobody's way
                    await anyio.to_thread.run_sync(
                        forget_logs, self._log_dir, name, abandon_on_cancel=True
                    )
