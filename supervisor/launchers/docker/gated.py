"""A container that was created and not started, up to the moment when its engine runs."""

import errno
import socket
from collections.abc import Callable

import anyio
import anyio.to_thread
from msgspec import UNSET

from supervisor.contracts.engine import LaunchPlan
from supervisor.contracts.failure import SpawnReason
from supervisor.contracts.instance import DockerHandle
from supervisor.launchers.base import Gated, Running, SpawnError
from supervisor.launchers.docker.engine import Engine, EngineDown, EngineRefused
from supervisor.launchers.docker.removal import remove

START_TRIES = 5
TRY_AGAIN_S = 0.5
_EXIT_REASONS: dict[int, SpawnReason] = {126: "not-executable", 127: "binary-missing"}
"""What the engine notes as the exit code of a program that it could not run."""


class GatedContainer(Gated):
    """Used once: opened or abandoned."""

    ref: DockerHandle

    def __init__(
        self, engine: Engine, ref: DockerHandle, plan: LaunchPlan, running: Callable[[], Running]
    ) -> None:
        self.ref = ref
        self._engine = engine
        self._plan = plan
        self._running = running
        self._used = False

    async def open(self) -> Running:
        """Start it. Where the engine leaves us without an answer it may run: so it is watched."""
        if self._used:
            raise RuntimeError("a gate opens once")
        self._used = True
        for _ in range(START_TRIES):
            try:
                await self._engine.start(self.ref.container)
                break
            except EngineRefused as no:
                raise await self._failed(no) from no
            except EngineDown:
                # Starting what runs already is no error, so it can be tried again.
                await anyio.sleep(TRY_AGAIN_S)
        return self._running()

    async def abandon(self) -> None:
        """Does nothing once the gate was opened: then there is an engine to stop."""
        if self._used:
            return
        self._used = True
        try:
            await remove(self._engine, self.ref.container, self.ref.daemon or None)
        except (EngineDown, EngineRefused):
            return  # it never ran, and its labels give it away at the next start

    async def _failed(self, no: EngineRefused) -> SpawnError:
        """Why it was not started; the container goes. Where that is not proved it remains: an
        engine that refuses a start may have obeyed one that it did not answer.
        """
        reason: SpawnReason | None = None
        gone = False
        try:
            of = self.ref.daemon or None
            seen = await self._engine.inspect(self.ref.container, of)
            if seen is not None:
                reason = _EXIT_REASONS.get(seen.state.exit_code)
            gone = await remove(self._engine, self.ref.container, of)
        except (EngineDown, EngineRefused):
            pass  # as good as no: it is not proved
        if reason is None and await anyio.to_thread.run_sync(_taken, self._plan):
            reason = "port-taken"
        detail = f"the container could not be started: {no.message}"
        return SpawnError(detail, reason, remains=not gone)


def _taken(plan: LaunchPlan) -> bool:
    """Whether somebody listens where the container's ports were to be published. Blocks."""
    host = "127.0.0.1" if plan.bind_host is UNSET else plan.bind_host
    for port in plan.ports:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port.host))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False
