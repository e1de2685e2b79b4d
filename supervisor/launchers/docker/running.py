"""A container that was started, or that a record says was."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread

from supervisor.contracts.engine import StopStyle
from supervisor.contracts.event import MemberProcess
from supervisor.contracts.instance import DockerHandle, Liveness, Ownership
from supervisor.launchers.base import (
    CannotTellError,
    Exit,
    NotOursError,
    Running,
    StopReceipt,
    StopUnfinishedError,
)
from supervisor.launchers.docker.engine import EngineDown, EngineRefused
from supervisor.launchers.docker.facts import Container
from supervisor.launchers.docker.members import described, members_of, owner_of
from supervisor.launchers.docker.removal import remove
from supervisor.launchers.docker.watch import Watch, exit_of
from supervisor.launchers.grace import Grace

FRESH_S = 0.25
"""How old the proof before a question may be; the one after it is never old."""


class DockerRunning(Running):
    """Answers for one container, and so for all processes in it: they end with its main one."""

    ref: DockerHandle

    def __init__(self, watch: Watch, kill_patience_s: float, on_close: Callable[[], None]) -> None:
        self.ref = watch.ref
        self._watch = watch
        self._engine = watch.engine
        self._patience_s = kill_patience_s
        self._on_close = on_close
        self._stopping = anyio.Lock()
        self._grace = Grace()
        self._proved: tuple[float, tuple[int, str]] | None = None
        self._told = False
        """A stop sent it something, or removed it, or may have: no answer is no refusal."""
        self._direct = False
        """It is on the host's network, where its own processes hold the port."""

    @property
    def doubt(self) -> str | None:
        return self._watch.trouble

    async def wait_exit(self) -> Exit:
        return await self._watch.ended()

    async def liveness(self) -> Liveness:
        try:
            seen = await self._watch.look()
        except (EngineDown, EngineRefused):
            return "unknown"
        if self._watch.foreign:
            return "unknown"
        if seen is not None and seen.alive:
            return "alive"
        await self._watch.settle(_exit(seen))
        return "leaderGone" if seen is not None and not await self._cleared() else "gone"

    async def members(self) -> tuple[MemberProcess, ...]:
        found = await anyio.to_thread.run_sync(members_of, self.ref.container, self._watch.main)
        if found is None:
            raise CannotTellError("the container's processes cannot be seen from here")
        return described(found)

    async def owns_socket(self, inode: int) -> Ownership:
        return await anyio.to_thread.run_sync(
            owner_of, inode, self.ref.container, self._watch.main, abandon_on_cancel=True
        )

    async def publishes(self, port: int, *, again: bool = False) -> tuple[Ownership, str] | None:
        """By an inspect: the port is bound to this container, in the same run of it throughout."""
        if self._direct:
            return None
        now = anyio.current_time()
        fresh = self._proved and now - self._proved[0] < FRESH_S
        if fresh and not again and self._watch.trouble is None:
            return "ours", ""
        before, self._proved = self._proved, None
        try:
            seen = await self._watch.look()
        except (EngineDown, EngineRefused) as error:
            return "unknown", f"the container engine cannot be asked: {error}"
        if seen is None or self._watch.foreign or not seen.alive:
            return "foreign", "the container does not run"
        if seen.on_host_network:
            self._direct = True
            return None
        if seen.state.paused:
            return "foreign", "the container is paused"
        if not seen.leads_here(port):
            return "foreign", f"port {port} does not lead to the container"
        if again and before and before[1] != seen.run:
            return "foreign", "the container was started anew meanwhile"
        self._proved = now, seen.run
        return "ours", ""

    async def stop(self, style: StopStyle, grace_ms: int) -> StopReceipt:
        # A second caller finds the work done.
        async with self._stopping:
            try:
                return await self._stop(style, grace_ms / 1000)
            except EngineDown as error:
                raise self._broken_off(str(error)) from error
            except EngineRefused as error:
                raise self._broken_off(
                    f"the container engine refuses to end {self.ref.container[:12]}: {error}"
                ) from error
            finally:
                self._grace.forget()

    def hasten(self, grace_ms: int) -> None:
        self._grace.hasten(grace_ms)

    def close(self) -> None:
        self._watch.close()
        self._on_close()

    async def _stop(self, style: StopStyle, grace_s: float) -> StopReceipt:
        seen = await self._ours()
        killed: tuple[MemberProcess, ...] = ()
        if seen is not None and seen.alive:
            with self._grace.running(grace_s):
                await self._ask(seen, style)
            seen = await self._ours()
        if seen is not None and seen.alive:
            killed = await self._kill(seen)
            seen = await self._ours()
        if seen is not None and seen.alive:
            return StopReceipt(exit=None, killed=killed, survivors=await self._left(seen))
        await self._watch.settle(_exit(seen))
        if seen is not None and not await self._cleared():
            raise self._broken_off(f"the container {self.ref.container[:12]} could not be removed")
        return StopReceipt(exit=self._watch.exit, killed=killed)

    async def _ours(self) -> Container | None:
        """Looked up now. Raises ``NotOursError``."""
        seen = await self._watch.look()
        if self._watch.foreign:
            raise NotOursError(
                f"container {self.ref.container[:12]} carries another launch's marks"
            )
        return seen

    async def _ask(self, seen: Container, style: StopStyle) -> None:
        if seen.state.paused:  # it would get the signal only once it goes on
            await self._leniently(self._engine.unpause(self.ref.container))
        await self._signal("SIGTERM")
        if style.second_term_after_ms is not None:
            with anyio.move_on_after(style.second_term_after_ms / 1000):
                await self._watch.until_dead()
                return
            await self._signal("SIGTERM")
        await self._watch.until_dead()

    async def _kill(self, seen: Container) -> tuple[MemberProcess, ...]:
        members = await self._left(seen)
        await self._signal("SIGKILL")
        with anyio.move_on_after(self._patience_s):
            await self._watch.until_dead()
        return members

    async def _left(self, seen: Container) -> tuple[MemberProcess, ...]:
        """Who lives in it; where they cannot be seen, its main process as the engine has it."""
        with anyio.move_on_after(1):
            found = await anyio.to_thread.run_sync(
                members_of, self.ref.container, seen.state.pid, abandon_on_cancel=True
            )
            if found:
                return described(found)
        return (MemberProcess(pid=seen.state.pid, name=seen.name.lstrip("/")),)

    async def _signal(self, signal: str) -> None:
        told, self._told = self._told, True
        try:
            await self._leniently(self._engine.kill(self.ref.container, signal))
        except EngineRefused:
            self._told = told
            raise

    def _broken_off(self, why: str) -> CannotTellError | StopUnfinishedError:
        return StopUnfinishedError(why) if self._told else CannotTellError(why)

    async def _leniently(self, act: Awaitable[None]) -> None:
        """It may have ended, or be gone, by the time that it is told to."""
        try:
            await act
        except EngineRefused as no:
            if not (no.missing or no.conflict):
                raise

    async def _cleared(self) -> bool:
        try:
            return await remove(self._engine, self.ref.container, self.ref.daemon or None)
        except (EngineDown, EngineRefused):
            return False


def _exit(seen: Container | None) -> Exit:
    return Exit(None, None, detail="the container is gone") if seen is None else exit_of(seen)
