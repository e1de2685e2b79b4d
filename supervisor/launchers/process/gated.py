"""A stub and its gate, up to the moment when the engine runs."""

from collections.abc import Callable

from supervisor.launchers.base import Exit, Gated, Running, SpawnError
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.pidfd import ExitWatch
from supervisor.launchers.process.spawner import Stub, explain
from supervisor.launchers.process.stub import OPEN, TRYING, parse_report


class GatedProcess(Gated):
    """Used once: opened or abandoned. ``done`` is called when the gate is free for another."""

    def __init__(
        self,
        stub: Stub,
        cgroup: Cgroup | None,
        running: Callable[[ExitWatch], Running],
        done: Callable[[], None],
    ) -> None:
        self.ref = stub.ref
        self.cgroup = str(cgroup) if cgroup else None
        self._stub = stub
        self._cgroup = cgroup
        self._running = running
        self._done = done
        self._used = False

    async def open(self) -> Running:
        """A cancelled call lets go: the engine may start, and ``attach`` answers for it."""
        if self._used:
            raise RuntimeError("a gate opens once")
        self._used = True
        try:
            said = await self._let_through()
        except BaseException:
            self._stub.watch.close()
            raise
        finally:
            self._stub.link.close()
            self._done()
        if said == TRYING:
            return self._running(self._stub.watch)
        ended = await self._end()
        if report := parse_report(said.removeprefix(TRYING)):
            raise explain(report)
        cause = ended.signal or f"exit code {ended.exit_code}"
        raise SpawnError(f"the start stub ended before it could start the engine ({cause})")

    async def abandon(self) -> None:
        """Does nothing once the gate was opened: then there is an engine to stop, not a stub."""
        if self._used:
            return
        self._used = True
        try:
            await self._end()
        finally:
            self._done()

    async def _end(self) -> Exit:
        ended = await self._stub.end()
        if self._cgroup:
            await self._cgroup.dispose()
        return ended

    async def _let_through(self) -> bytes:
        try:
            await self._stub.send(OPEN)
        except (BrokenPipeError, ConnectionResetError):
            return b""
        return await self._stub.outcome()
