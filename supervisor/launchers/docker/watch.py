"""The watch over one container: it notices the end, and keeps the log coming until then.

A wait at the container engine tells the end, and so does its stream of events; neither is believed
without an inspect. A stream that breaks off, an engine that is being restarted or does not answer
tell nothing: then the question is put again, with pauses that grow.
"""

from signal import Signals

import anyio
import anyio.to_thread

from supervisor.contracts.instance import DockerHandle
from supervisor.launchers.base import Exit
from supervisor.launchers.docker.engine import Engine, EngineDown, EngineRefused
from supervisor.launchers.docker.facts import Container
from supervisor.launchers.docker.labels import is_of
from supervisor.launchers.docker.logcopy import LogCopy
from supervisor.launchers.docker.members import open_main
from supervisor.launchers.process.pidfd import ExitWatch

PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Between questions that get no answer; the last one repeats."""
LOG_S = 1.0
"""How long the news of an exit waits for the last words."""
EARLY_S = 0.05
"""How long what the kernel told waits for what the container engine has to say about it."""

REMOVED = "the container was removed from outside"
RESTARTED = "the container was restarted from outside"
NEVER_RAN = "the container was created and never started"


class Watch:
    """Of one launch's container. ``run`` must go on for as long as anybody asks it anything."""

    def __init__(
        self, engine: Engine, ref: DockerHandle, nonce: str, log_path: str | None = None
    ) -> None:
        self.engine = engine
        self.ref = ref
        self.container = ref.container
        self.nonce = nonce
        self.exit: Exit | None = None
        self.main = 0
        """The pid of its main process when it was last looked at."""
        self.foreign = False
        """The engine has a container of this id that another launch created."""
        self.trouble: str | None = None
        """Why it could not be looked at the last time, where it could not."""
        self.starved = False
        """The kernel ended a process of it for want of memory."""
        self._log = LogCopy(engine, ref.container, log_path) if log_path else None
        self._ended = anyio.Event()
        self._poked = anyio.Event()
        self._runs = anyio.Event()
        self._scope: anyio.CancelScope | None = None
        self._closed = False

    @property
    def what(self) -> str:
        return f"the watch over container {self.container[:12]}"

    async def ended(self) -> Exit:
        await self._ended.wait()
        assert self.exit is not None, "set before"
        return self.exit

    def poke(self) -> None:
        """Something happened to it: look."""
        self._poked.set()

    def close(self) -> None:
        self._closed = True
        if self._scope is not None:
            self._scope.cancel()

    async def look(self) -> Container | None:
        """Ask the container engine about it now. Raises ``EngineDown`` and ``EngineRefused``."""
        try:
            seen = await self.engine.inspect(self.container, self.ref.daemon or None)
        except (EngineDown, EngineRefused) as error:
            self.trouble = str(error)
            raise
        self.trouble = None
        if seen is not None:
            self.main = seen.state.pid
            self.foreign = not is_of(seen.labels, self.nonce)
            if seen.alive and not self.foreign:
                self._runs.set()
        return seen

    async def run(self) -> None:
        """Until the end was seen and the log is whole, or until it is closed."""
        if self._closed:
            return
        with anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as tasks:
                if self._log is not None:
                    tasks.start_soon(self._log.run)
                tasks.start_soon(self._see_process)
                await self.settle(await self.until_dead(once=True))

    async def settle(self, exit_: Exit) -> None:
        """The container engine knows the end: tell it, once there are the last words before it."""
        if self._log is not None:
            self._log.finish()
            with anyio.move_on_after(LOG_S):
                await self._log.done.wait()
        self._tell(exit_)

    async def until_dead(self, *, once: bool = False) -> Exit:
        """Until the container engine says so, whatever happens to that meanwhile.

        With ``once``, one that somebody started anew has ended too.
        """
        code: int | None = None
        run: tuple[int, str] | None = None
        failures = 0
        while True:
            self._poked = anyio.Event()
            try:
                seen = await self.look()
                if self.foreign:
                    await anyio.sleep_forever()
                if seen is None:
                    return Exit(code, None, detail=REMOVED)
                if not seen.alive:
                    return exit_of(seen, starved=self.starved)
                if once and run not in (None, seen.run):
                    return Exit(code, None, detail=RESTARTED)
                run = seen.run
                failures = 0 if code is None else failures + 1
                code = await self._wait()
            except (EngineDown, EngineRefused) as error:
                self.trouble = str(error)
                failures += 1
            if failures:
                await anyio.sleep(PAUSES_S[min(failures, len(PAUSES_S)) - 1])

    async def _wait(self) -> int | None:
        """Until the engine says that it does not run, or that something happened to it."""
        code: int | None = None
        trouble: EngineDown | EngineRefused | None = None
        async with anyio.create_task_group() as either:

            async def poked() -> None:
                await self._poked.wait()
                either.cancel_scope.cancel()

            either.start_soon(poked)
            try:
                code = await self.engine.wait(self.container)
            except (EngineDown, EngineRefused) as error:
                trouble = error
            either.cancel_scope.cancel()
        if trouble is not None and not (isinstance(trouble, EngineRefused) and trouble.missing):
            raise trouble
        return code

    async def _see_process(self) -> None:
        """The news of the end straight from the kernel, where the container is this host's own:
        the engine tidies up for a tenth of a second before it says a word.
        """
        await self._runs.wait()
        pidfd = await anyio.to_thread.run_sync(open_main, self.container, self.main)
        if pidfd is None:
            return
        process = ExitWatch(pidfd)
        try:
            seen = await process.wait()
        finally:
            process.close()
        code = code_of(seen)
        with anyio.move_on_after(LOG_S if code is None else EARLY_S):
            await self._ended.wait()
        if code is not None:
            self._tell(exit_by(code, "", starved=self.starved))

    def _tell(self, exit_: Exit) -> None:
        if self.exit is None:
            self.exit = exit_
            self._ended.set()


def exit_of(container: Container, *, starved: bool = False) -> Exit:
    """How a dead one ended, as the container engine has it."""
    state = container.state
    if container.never_ran:
        return Exit(None, None, detail=state.error or NEVER_RAN)
    return exit_by(state.exit_code, state.error, starved=starved or state.oom_killed)


def exit_by(code: int, error: str, *, starved: bool) -> Exit:
    """The code is told as it is: 137 may be a program's own, or say that KILL ended it."""
    words = [error] if error else []
    starved = starved and code != 0
    if starved:
        words.append("the kernel ended it for want of memory")
    if name := _signal(code):
        words.append(f"exit code {code} stands for {name}")
    return Exit(code, None, detail="; ".join(words) or None, out_of_memory=starved)


def code_of(ended: Exit) -> int | None:
    """What the container engine will call the end of a process."""
    if ended.signal is None:
        return ended.exit_code
    try:
        return 128 + Signals[ended.signal]
    except KeyError:
        return None


def _signal(code: int) -> str | None:
    try:
        return Signals(code - 128).name if code > 128 else None
    except ValueError:
        return None
