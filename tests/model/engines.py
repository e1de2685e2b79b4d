"""Engines that are only thought: a launcher, its handles and a probe that honour the interfaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import anyio
from anyio.lowlevel import checkpoint

from supervisor.contracts.engine import LaunchPlan, StopStyle
from supervisor.contracts.event import MemberProcess
from supervisor.contracts.instance import HandleReference, Liveness, Ownership, ProcessHandle
from supervisor.health.outcome import NotReady, Outcome, Ready
from supervisor.launchers.base import (
    Bearer,
    Exit,
    Gated,
    Launcher,
    Running,
    SpawnError,
    SpawnTicket,
    StopReceipt,
    Trace,
)

Nature = Literal["steady", "slow", "dies loading", "never ready", "dies later", "no program"]
NATURES: tuple[Nature, ...] = (
    "steady",
    "steady",
    "slow",
    "dies loading",
    "never ready",
    "dies later",
    "no program",
)
SLOW_S, LATER_S = 5.0, 20.0


@dataclass(eq=False)
class Engine:
    """One engine's whole truth, which outlives every supervisor."""

    pid: int
    name: str
    nonce: str
    devices: tuple[str, ...]
    nature: Nature
    deaf: bool
    worker: bool
    """It has a member beside its main process, which outlives that."""
    born: float | None = None
    """When its gate opened."""
    exit: Exit | None = None
    workers_left: bool = False
    was_ready: bool = False
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def lives(self) -> bool:
        """Any of its tree does."""
        return self.born is not None and (self.exit is None or self.workers_left)

    def start(self) -> None:
        self.born, self.workers_left = anyio.current_time(), self.worker

    def die(self, exit_: Exit, *, whole: bool = False) -> None:
        self.exit = self.exit or exit_
        self.workers_left = self.workers_left and not whole
        self.ended.set()

    def look(self) -> None:
        """What its nature does to it in time."""
        age = anyio.current_time() - (self.born or 0)
        due = {"dies loading": 0.2, "dies later": LATER_S}.get(self.nature)
        if self.born is not None and self.exit is None and due is not None and age >= due:
            self.die(Exit(1, None))

    @property
    def healthy(self) -> bool:
        self.look()
        age = anyio.current_time() - (self.born or 0)
        loaded = age >= (SLOW_S if self.nature == "slow" else 0.1)
        return self.exit is None and loaded and self.nature not in ("never ready", "dies loading")


class ThoughtRunning(Running):
    def __init__(self, ref: HandleReference, engine: Engine) -> None:
        self.ref = ref
        self.engine = engine
        self.grace = anyio.CancelScope()

    async def wait_exit(self) -> Exit:
        while self.engine.exit is None:
            with anyio.move_on_after(0.1):
                await self.engine.ended.wait()
            self.engine.look()
        return self.engine.exit

    async def liveness(self) -> Liveness:
        await checkpoint()
        self.engine.look()
        if self.engine.exit is None:
            return "alive"
        return "leaderGone" if self.engine.lives else "gone"

    async def members(self) -> tuple[MemberProcess, ...]:
        await checkpoint()
        return (MemberProcess(pid=self.engine.pid, name="engine"),) if self.engine.lives else ()

    async def owns_socket(self, inode: int) -> Ownership:
        return "ours"

    async def stop(self, style: StopStyle, grace_ms: int) -> StopReceipt:
        await checkpoint()
        self.hasten(grace_ms)
        if self.engine.deaf and self.engine.exit is None:
            with self.grace:
                await self.engine.ended.wait()
        swept = await self.members() if self.engine.exit else ()
        self.engine.die(Exit(None, "SIGKILL") if self.engine.deaf else Exit(0, None), whole=True)
        return StopReceipt(exit=self.engine.exit, swept=swept)

    def hasten(self, grace_ms: int) -> None:
        self.grace.deadline = min(self.grace.deadline, anyio.current_time() + grace_ms / 1000)

    def close(self) -> None:
        pass


class ThoughtGated(Gated):
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ref = ProcessHandle(pid=engine.pid, start_token=None)

    async def open(self) -> Running:
        await checkpoint()
        if self.engine.nature == "no program":
            raise SpawnError("there is no such program", "binary-missing")
        self.engine.start()
        await checkpoint()
        return ThoughtRunning(self.ref, self.engine)

    async def abandon(self) -> None:
        await checkpoint()


class ThoughtLauncher(Launcher):
    """``natures`` says what the next engine of a name will be like."""

    def __init__(self) -> None:
        self.engines: dict[int, Engine] = {}
        self.natures: dict[str, tuple[Nature, bool, bool]] = {}

    async def prepare(self, plan: LaunchPlan, ticket: SpawnTicket) -> Gated:
        await checkpoint()
        nature, deaf, worker = self.natures[ticket.name]
        engine = Engine(
            pid=1_000_000 + len(self.engines),
            name=ticket.name,
            nonce=ticket.nonce,
            devices=_devices(ticket.env),
            nature=nature,
            deaf=deaf,
            worker=worker,
        )
        self.engines[engine.pid] = engine
        return ThoughtGated(engine)

    async def attach(self, ref: HandleReference, nonce: str, *_: object, **__: object) -> Running:
        await checkpoint()
        assert isinstance(ref, ProcessHandle)
        engine = self.engines[ref.pid]
        if engine.born is None:  # its stub ended with the supervisor that held the gate
            engine.die(Exit(None, None))
        return ThoughtRunning(ref, engine)

    async def bearers(self, trace: Trace) -> tuple[Bearer, ...]:
        return ()


class ThoughtProbe:
    """Stands in the place of ``Probe``; the owner that it is given is the running engine."""

    last: Outcome | None = None

    def __init__(self, _: Any, __: Any, ___: Any, owner: ThoughtRunning, **____: Any) -> None:
        self._engine = owner.engine

    async def readiness(self, within_s: float | None = None) -> Outcome:
        await checkpoint()
        if self._engine.healthy:
            self._engine.was_ready = True
            self.last = Ready("ok")
        else:
            self.last = NotReady("refused", "nobody listens")
        return self.last

    health = readiness

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


def _devices(env: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(env["ENGINE_SUPERVISOR_DEVICES"].split(","))
