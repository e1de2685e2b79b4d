"""How a tree ends: its main process is asked, then what is left is asked, then all is killed.

Engines take their own workers down, and a worker that is asked before it has a handler orphans
its children: so the main process alone is asked first. The escalation hangs on the tree being
empty and on nothing else, for a main process that leaves obediently proves nothing about the rest.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from signal import SIGCONT, SIGKILL, SIGTERM

import anyio
from anyio import to_thread

from supervisor.contracts.engine import StopStyle
from supervisor.launchers.base import CannotTellError, StopReceipt, StopUnfinishedError
from supervisor.launchers.grace import Grace
from supervisor.launchers.process.census import ScanFailedError
from supervisor.launchers.process.pidfd import ExitWatch, open_pidfd, send
from supervisor.launchers.process.procfs import Stat, read_stat
from supervisor.launchers.process.tree import Members, Tree, describe

RESCAN_S = 1.0
"""How long a newcomer can go unseen while its elders are waited for."""
RETRY_S = 0.05
"""The pace of scans where members can be seen but not be had."""
EXIT_WAIT_S = 0.1


@dataclass(slots=True)
class Stop:
    """One stop of one tree, and what it did so far."""

    tree: Tree
    grace: Grace = field(default_factory=Grace)
    killed: dict[tuple[int, int], Stat] = field(default_factory=dict)
    swept: dict[tuple[int, int], Stat] = field(default_factory=dict)
    asked: set[tuple[int, int]] = field(default_factory=set)
    """Who was sent TERM, in an earlier try at the same stop too: once is enough."""

    @property
    def leader(self) -> ExitWatch | None:
        """None where the main process had ended before anybody watched it."""
        return self.tree.watch

    async def run(self, style: StopStyle, grace_s: float, patience_s: float) -> StopReceipt:
        """``patience_s`` is how long KILL may take: the kernel frees a large memory slowly.

        Raises ``CannotTellError``, and ``StopUnfinishedError`` once anything was sent.
        """
        try:
            return await self._run(style, grace_s, patience_s)
        except (ScanFailedError, CannotTellError) as error:
            why = str(error) or "the processes of this host cannot be read"
            kind = StopUnfinishedError if self.asked or self.killed else CannotTellError
            raise kind(why) from error

    async def _run(self, style: StopStyle, grace_s: float, patience_s: float) -> StopReceipt:
        with self.grace.running(grace_s):
            await self._ask_leader(style)
            await self._ask_members()
            return await self._receipt()
        with anyio.move_on_after(patience_s):
            await self._kill()
            return await self._receipt()
        return await self._receipt(survivors=(await self.tree.look()).members)

    async def _ask_leader(self, style: StopStyle) -> None:
        if self.leader is None or not self.leader.alive():
            return
        # With it, its children lose the parent that they are known by: see them now.
        await self.tree.look()
        leader = self.tree.leader, self.tree.start
        if leader not in self.asked:
            self.asked.add(leader)
            # A stopped process gets the first only once it goes on.
            self.leader.send(SIGTERM, SIGCONT)
        if style.second_term_after_ms is not None:
            with anyio.move_on_after(style.second_term_after_ms / 1000):
                await self.leader.wait()
            self.leader.send(SIGTERM)
        await self.leader.wait()

    async def _ask_members(self) -> None:
        while members := await self._members():
            self.swept |= {key(stat): stat for stat in members}
            with opened(members) as pidfds:
                for stat, pidfd in pidfds:
                    if key(stat) not in self.asked:
                        self.asked.add(key(stat))
                        send(pidfd, SIGTERM, SIGCONT)
                await until_ended(pidfd for _, pidfd in pidfds)

    async def _kill(self) -> None:
        await self._kill_inside()
        while members := await self._members():
            with opened(members) as pidfds:
                for stat, pidfd in pidfds:
                    if send(pidfd, SIGKILL):
                        self.killed[key(stat)] = stat
                await until_ended(pidfd for _, pidfd in pidfds)

    async def _kill_inside(self) -> None:
        """All of the cgroup at one stroke, before anybody outside is even looked for."""
        cgroup, inside = self.tree.cgroup, await self.tree.inside()
        if cgroup is None or not inside:
            return
        if await to_thread.run_sync(cgroup.kill):
            self.killed |= {key(stat): stat for stat in inside}
            with suppress(OSError):
                await cgroup.emptied(RESCAN_S)

    async def _members(self) -> Members:
        seen = await self.tree.look()
        if seen.doubtful and not seen.members:
            raise CannotTellError("processes in its session show nothing that proves them ours")
        return seen.members

    async def _receipt(self, survivors: Members = ()) -> StopReceipt:
        left = {key(stat) for stat in survivors}
        if self.leader and not self.leader.alive():
            with anyio.move_on_after(EXIT_WAIT_S):
                await self.leader.wait()
        return StopReceipt(
            exit=self.leader.exit if self.leader else None,
            killed=describe(self.killed.values()),
            swept=describe(stat for at, stat in self.swept.items() if at not in left),
            survivors=describe(survivors),
        )


def key(stat: Stat) -> tuple[int, int]:
    return stat.pid, stat.start


@contextmanager
def opened(members: Members) -> Iterator[list[tuple[Stat, int]]]:
    """Pidfds of those that are still who they were. What is signalled here cannot be another."""
    pidfds: list[tuple[Stat, int]] = []
    try:
        pidfds.extend((stat, pidfd) for stat in members if (pidfd := _open_same(stat)) is not None)
        yield pidfds
    finally:
        for _, pidfd in pidfds:
            os.close(pidfd)


def _open_same(stat: Stat) -> int | None:
    try:
        pidfd = open_pidfd(stat.pid)
    except OSError:
        return None
    if pidfd is None:
        return None
    now = read_stat(stat.pid)
    if now is None or now.start != stat.start:
        os.close(pidfd)
        return None
    return pidfd


async def until_ended(pidfds: Iterable[int]) -> None:
    """Until all have, or until it is time to look for newcomers."""
    with anyio.move_on_after(RESCAN_S):
        alone = True
        for pidfd in pidfds:
            alone = False
            await anyio.wait_readable(pidfd)
        if alone:
            await anyio.sleep(RETRY_S)
