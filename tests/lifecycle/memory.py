"""A launcher without processes, for what no real process can be made to do.

Its engine is a server on a thread of this test, so that a probe finds something to ask, and a tree
that does as it is told: survives KILL, belongs to somebody else, cannot be judged.
"""

from collections.abc import Callable

import anyio
import anyio.lowlevel

from supervisor.contracts.engine import LaunchPlan, StopStyle
from supervisor.contracts.event import MemberProcess
from supervisor.contracts.instance import HandleReference, Liveness, Ownership, ProcessHandle
from supervisor.launchers.base import (
    Bearer,
    CannotTellError,
    Exit,
    Gated,
    Launcher,
    NotOursError,
    Running,
    SpawnTicket,
    StopReceipt,
    StopUnfinishedError,
    Trace,
)
from tests.lifecycle.squatter import Squatter

LEADER = MemberProcess(pid=999_999_001, name="llama-server")
STUCK = MemberProcess(pid=999_999_002, name="stuck-in-driver")


class MemoryEngine:
    """One engine's whole truth, whoever answers for it. ``on_stop`` may be changed any time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.server: Squatter | None = None
        self.exit: Exit | None = None
        self.exited = anyio.Event()
        self.members: tuple[MemberProcess, ...] = ()
        self.unjudged = False
        self.graces: list[int] = []
        self.on_stop: Callable[[], StopReceipt] = self.obey

    def start(self, *, listens: bool) -> None:
        self.members = (LEADER,)
        if listens:
            self.server = Squatter(self.port)

    def die(self, exit_: Exit, *survivors: MemberProcess) -> None:
        self.exit, self.members = exit_, survivors
        if self.server is not None:
            self.server.close()
            self.server = None
        self.exited.set()

    # What a stop may do

    def obey(self) -> StopReceipt:
        self.die(self.exit or Exit(0, None))
        return StopReceipt(exit=self.exit)

    def leave_one_stuck(self) -> StopReceipt:
        self.die(Exit(None, "SIGKILL"), STUCK)
        return StopReceipt(exit=self.exit, killed=(LEADER, STUCK), survivors=(STUCK,))

    def be_somebody_else(self) -> StopReceipt:
        raise NotOursError("another launch started it")

    def be_unknowable(self) -> StopReceipt:
        raise CannotTellError("nothing proves that it is ours")

    def be_lost_sight_of(self) -> StopReceipt:
        raise StopUnfinishedError("the processes of this host cannot be read")


class MemoryRunning(Running):
    def __init__(self, ref: HandleReference, engine: MemoryEngine) -> None:
        self.ref = ref
        self.engine = engine
        self.closed = False

    async def wait_exit(self) -> Exit:
        await self.engine.exited.wait()
        assert self.engine.exit
        return self.engine.exit

    async def liveness(self) -> Liveness:
        if self.engine.unjudged:
            return "unknown"
        if self.engine.exit is None:
            return "alive"
        return "leaderGone" if self.engine.members else "gone"

    async def members(self) -> tuple[MemberProcess, ...]:
        return self.engine.members

    async def owns_socket(self, inode: int) -> Ownership:
        return "ours"

    async def stop(self, style: StopStyle, grace_ms: int) -> StopReceipt:
        await anyio.lowlevel.checkpoint()
        self.engine.graces.append(grace_ms)
        return self.engine.on_stop()

    def close(self) -> None:
        self.closed = True


class MemoryGated(Gated):
    def __init__(self, ref: HandleReference, engine: MemoryEngine, *, listens: bool) -> None:
        self.ref = ref
        self.engine = engine
        self.listens = listens

    async def open(self) -> Running:
        self.engine.start(listens=self.listens)
        return MemoryRunning(self.ref, self.engine)

    async def abandon(self) -> None:
        return


class MemoryLauncher(Launcher):
    """``engines`` has every engine it ever made, oldest first."""

    def __init__(self, *, listens: bool = True) -> None:
        self.listens = listens
        self.engines: list[MemoryEngine] = []
        self.attached: list[str | None] = []
        """The logs that it was told of when it had to find an engine again."""

    async def prepare(self, plan: LaunchPlan, ticket: SpawnTicket) -> Gated:
        engine = MemoryEngine(int(plan.argv[plan.argv.index("--port") + 1]))
        self.engines.append(engine)
        ref = ProcessHandle(pid=999_000_000 + len(self.engines), start_token=None)
        return MemoryGated(ref, engine, listens=self.listens)

    async def attach(
        self,
        ref: HandleReference,
        nonce: str,
        cgroup: str | None = None,
        log_path: str | None = None,
    ) -> Running:
        assert isinstance(ref, ProcessHandle)
        self.attached.append(log_path)
        return MemoryRunning(ref, self.engines[ref.pid - 999_000_001])

    async def bearers(self, trace: Trace) -> tuple[Bearer, ...]:
        return ()
