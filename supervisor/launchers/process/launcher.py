"""Process launches: prepare a stub, open its gate, answer for the engine that it became.

An engine's life never depends on ours. There is no pipe to it, no subprocess object that ends it
with the loop, no signal tied to our death; after our end a new daemon attaches and goes on.
"""

from collections.abc import Container

import anyio

from supervisor.contracts.engine import LaunchPlan
from supervisor.contracts.instance import HandleReference, ProcessHandle
from supervisor.launchers.base import (
    Bearer,
    CannotTellError,
    Gated,
    Launcher,
    Running,
    SpawnTicket,
    Stray,
    Trace,
)
from supervisor.launchers.process.bearers import find_bearers
from supervisor.launchers.process.census import SCAN_DEADLINE_S, CensusTaker
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.cgroups import Cgroups
from supervisor.launchers.process.gated import GatedProcess
from supervisor.launchers.process.identity import Verdict, examine
from supervisor.launchers.process.keeper import NoKeeper, PidfdKeeper, keeping_name
from supervisor.launchers.process.pidfd import ExitWatch
from supervisor.launchers.process.procfs import read_boot_id
from supervisor.launchers.process.running import ProcessRunning, watch_if_ours
from supervisor.launchers.process.spawner import GATES, Limits, Spawner, current_limits
from supervisor.patience import Overdue

KILL_PATIENCE_S = 30.0
"""Freeing a terabyte of memory takes the kernel most of this."""


class ProcessLauncher(Launcher):
    """Made once, before the daemon raises any limit of its own: engines get the limits of then."""

    def __init__(
        self,
        *,
        boot_id: str | None = None,
        gates: int = GATES,
        limits: Limits | None = None,
        kill_patience_s: float = KILL_PATIENCE_S,
        cgroups: Cgroups | None = None,
        keeper: PidfdKeeper | None = None,
    ) -> None:
        self._boot_id = boot_id or read_boot_id()
        self._spawner = Spawner(self._boot_id, current_limits() if limits is None else limits)
        self._gates = anyio.Semaphore(gates)
        self._census = CensusTaker()
        self._patience_s = kill_patience_s
        self._cgroups = cgroups or Cgroups(None)
        self._keeper: PidfdKeeper = keeper or NoKeeper()

    async def prepare(self, plan: LaunchPlan, ticket: SpawnTicket) -> Gated:
        """Waits for its turn while as many gates as there may be stand open."""
        await self._gates.acquire()
        try:
            stub = await self._spawner.spawn(plan, ticket)
            cgroup = await self._cgroups.enter(stub.ref.pid, ticket.name, ticket.nonce)
        except BaseException:
            self._gates.release()
            raise

        def running(watch: ExitWatch) -> Running:
            self._keeper.keep(keeping_name(stub.ref, ticket.nonce), watch.pidfd)
            return self._running(
                stub.ref, ticket.nonce, cgroup, Verdict.OURS, watch, ticket.log_path
            )

        return GatedProcess(stub, cgroup, running, self._gates.release)

    async def attach(
        self,
        ref: HandleReference,
        nonce: str,
        cgroup: str | None = None,
        log_path: str | None = None,
    ) -> Running:
        if not isinstance(ref, ProcessHandle):
            raise TypeError(f"not a handle of a process: {ref!r}")
        place = self._cgroups.recorded(cgroup, nonce, ref.pid)
        kept = self._keeper.take(keeping_name(ref, nonce))
        if kept is not None:
            # We put it there ourselves, under a name that only this attempt has: no better proof.
            return self._running(ref, nonce, place, Verdict.OURS, ExitWatch(kept), log_path)
        verdict, pidfd = await examine(ref, nonce, self._boot_id, place)
        return self._running(ref, nonce, place, verdict, watch_if_ours(verdict, pidfd), log_path)

    async def bearers(self, trace: Trace) -> tuple[Bearer, ...]:
        look = self._census.patience
        try:
            return await look.run(find_bearers, trace, self._cgroups, within_s=SCAN_DEADLINE_S)
        except Overdue as error:
            raise CannotTellError(f"who bears its marks cannot be told: {error}") from None

    async def strays(self, known: Container[str]) -> tuple[Stray, ...]:
        return await self._cgroups.strays(known)

    def _running(
        self,
        ref: ProcessHandle,
        nonce: str,
        cgroup: Cgroup | None,
        verdict: Verdict,
        watch: ExitWatch | None,
        log_path: str | None,
    ) -> Running:
        return ProcessRunning(
            ref,
            nonce,
            cgroup,
            boot_id=self._boot_id,
            census=self._census,
            patience_s=self._patience_s,
            verdict=verdict,
            watch=watch,
            log_path=log_path,
            on_close=lambda: self._keeper.drop(keeping_name(ref, nonce)),
        )
