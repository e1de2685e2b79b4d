"""Container launches: create, hand the id to the record, start; answer for it afterwards.

The container engine's daemon is the parent of the engines, so nothing of ours has to live for
theirs. One connection watches all containers and one each waits for its end.
"""

from collections.abc import Callable, Mapping
from collections.abc import Container as Holds
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
from msgspec import UNSET

from supervisor.contracts.config import DockerConfig
from supervisor.contracts.engine import LaunchPlan
from supervisor.contracts.failure import SpawnReason
from supervisor.contracts.instance import DockerHandle, HandleReference
from supervisor.launchers.base import (
    Bearer,
    CannotTellError,
    Gated,
    Launcher,
    Running,
    SpawnError,
    SpawnTicket,
    Stray,
    Trace,
)
from supervisor.launchers.docker.body import create_body
from supervisor.launchers.docker.census import find_containers, find_strays
from supervisor.launchers.docker.endpoint import socket_path
from supervisor.launchers.docker.engine import Engine, EngineDown, EngineRefused
from supervisor.launchers.docker.gated import GatedContainer
from supervisor.launchers.docker.image import have_image
from supervisor.launchers.docker.labels import (
    container_name,
    is_ours,
    marks,
)
from supervisor.launchers.docker.logcopy import make_log
from supervisor.launchers.docker.news import follow_news
from supervisor.launchers.docker.removal import remove
from supervisor.launchers.docker.running import DockerRunning
from supervisor.launchers.docker.steady import steadily
from supervisor.launchers.docker.watch import Watch
from supervisor.patience import Overdue, Patience

KILL_PATIENCE_S = 30.0
CENSUS_S = 60.0
"""For the list, and for the removal of the dead ones on it."""
CONFLICT_TRIES = 20
CONFLICT_S = 0.25

T = TypeVar("T")
_census = Patience("asking the container engine", 4)


class DockerLauncher(Launcher):
    """``run`` must go on for as long as anything else is called."""

    def __init__(
        self,
        config: DockerConfig,
        supervisor_id: str,
        env: Mapping[str, str],
        *,
        kill_patience_s: float = KILL_PATIENCE_S,
    ) -> None:
        """``env`` is the daemon's own: it names the socket and the user's credentials."""
        self._config = config
        self._id = supervisor_id
        self._env = env
        self._patience_s = kill_patience_s
        self._engine = Engine(socket_path(config, env))
        self._watches: dict[str, Watch] = {}
        self._births: list[_Birth] = []
        self._made: set[str] = set()
        """Nonces of this daemon's own launches: their containers are not lost."""
        self._work = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        try:
            await self._work.wait()
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for watch in self._watches.values():
                    self._begin(watch)
                for birth in self._births:
                    self._begin(birth)
                await steadily("events of the container engine", self._follow)
        finally:
            self._tasks = None
            await self._engine.close()

    async def prepare(self, plan: LaunchPlan, ticket: SpawnTicket) -> Gated:
        """Pulls the image first where that has to be: it may take its own time."""
        image = "" if plan.image is UNSET else plan.image
        try:
            await have_image(self._engine, image, self._config, self._env, ticket.tell)
            await anyio.to_thread.run_sync(make_log, ticket.log_path)
            daemon = await self._engine.identity() or UNSET
            ref = DockerHandle(container=await self._create(plan, ticket), daemon=daemon)
        except EngineDown as error:
            raise SpawnError(str(error)) from error
        except EngineRefused as no:
            raise SpawnError(f"the container engine refuses: {no.message}") from no
        except OSError as error:
            raise SpawnError(
                f"the log {ticket.log_path!r} cannot be opened: {error.strerror}", "log-unwritable"
            ) from error

        def running() -> Running:
            return self._running(ref, ticket.nonce, ticket.log_path)

        return GatedContainer(self._engine, ref, plan, running)

    async def attach(
        self,
        ref: HandleReference,
        nonce: str,
        cgroup: str | None = None,
        log_path: str | None = None,
    ) -> Running:
        if not isinstance(ref, DockerHandle):
            raise TypeError(f"not a handle of a container: {ref!r}")
        return self._running(ref, nonce, log_path)

    async def bearers(self, trace: Trace) -> tuple[Bearer, ...]:
        return await self._asked(find_containers, trace)

    async def strays(self, known: Holds[str]) -> tuple[Stray, ...]:
        return await self._asked(find_strays, known, self._made)

    async def _asked(self, question: Callable[..., T], *about: object) -> T:
        """Raises ``CannotTellError``."""
        try:
            return await _census.run(
                question, self._engine.socket, self._id, *about, within_s=CENSUS_S
            )
        except Overdue as error:
            raise CannotTellError(f"the container engine cannot be asked: {error}") from error

    def _running(self, ref: DockerHandle, nonce: str, log_path: str | None) -> Running:
        watch = Watch(self._engine, ref, nonce, log_path)
        self._watches[ref.container] = watch
        self._begin(watch)

        def closed() -> None:
            if self._watches.get(ref.container) is watch:
                del self._watches[ref.container]

        return DockerRunning(watch, self._patience_s, closed)

    def _begin(self, task: "Watch | _Birth") -> None:
        self._work.set()
        if self._tasks is not None:
            self._tasks.start_soon(steadily, task.what, task.run)

    async def _follow(self) -> None:
        await follow_news(self._engine, self._id, self._poke, self._poke_all)

    def _poke(self, container: str, action: str) -> None:
        if watch := self._watches.get(container):
            watch.starved = watch.starved or action == "oom"
            watch.poke()

    def _poke_all(self) -> None:
        for watch in self._watches.values():
            watch.poke()

    # ── creating ─────────────────────────────────────────────────────────────

    async def _create(self, plan: LaunchPlan, ticket: SpawnTicket) -> str:
        """The id of the new container. A dead one of ours that has the name makes room for it."""
        name = container_name(ticket.name)
        labels = marks(ticket.name, ticket.nonce, self._id, plan.devices)
        body = create_body(plan, ticket, labels, self._config)
        self._made.add(ticket.nonce)
        for _ in range(CONFLICT_TRIES):
            try:
                return await self._born(name, body)
            except EngineRefused as no:
                if not no.conflict:
                    reason: SpawnReason | None = "image" if no.missing else None
                    raise SpawnError(
                        f"the container could not be created: {no.message}", reason
                    ) from no
            await self._make_room(name)
            await anyio.sleep(CONFLICT_S)
        raise SpawnError(f"the container name {name} does not become free")

    async def _make_room(self, name: str) -> None:
        """Raises ``SpawnError`` where the name's holder is not ours to remove."""
        holder = await self._engine.inspect(name)
        if holder is None:
            return  # on its way out
        if not is_ours(holder.labels, self._id):
            raise SpawnError(
                f"the container name {name} belongs to container {holder.id[:12]}, which this "
                "supervisor did not create; remove it or rename it"
            )
        if holder.alive:
            raise SpawnError(
                f"container {name} ({holder.id[:12]}) of an earlier launch runs, and no record "
                "knows it; end it with `docker rm -f`"
            )
        await remove(self._engine, holder.id)

    async def _born(self, name: str, body: Mapping[str, Any]) -> str:
        """Create it; cancelled meanwhile, see to it that there is none."""
        birth = _Birth(self._engine, name, body)
        self._births.append(birth)
        self._begin(birth)
        try:
            await birth.over.wait()
        except anyio.get_cancelled_exc_class():
            birth.wanted = False
            with anyio.CancelScope(shield=True):
                await birth.over.wait()
            raise
        finally:
            self._births.remove(birth)
        if birth.error is not None:
            raise birth.error
        assert birth.container is not None, "else there is an error"
        return birth.container


@dataclass(slots=True)
class _Birth:
    """One create request, in a task of its own: one that was cancelled half way through would
    leave a container whose id nobody knows.
    """

    engine: Engine
    name: str
    body: Mapping[str, Any]
    wanted: bool = True
    container: str | None = None
    error: EngineRefused | EngineDown | None = None
    over: anyio.Event = field(default_factory=anyio.Event)

    @property
    def what(self) -> str:
        return f"the creation of {self.name}"

    async def run(self) -> None:
        if self.over.is_set():
            return  # it failed, and whoever waited for it was told
        try:
            self.container = await self.engine.create(self.name, self.body)
            if not self.wanted:
                await remove(self.engine, self.container)
        except (EngineRefused, EngineDown) as error:
            self.error = error
        finally:
            if self.container is None and self.error is None:
                self.error = EngineDown("the supervisor stopped talking to the container engine")
            self.over.set()
