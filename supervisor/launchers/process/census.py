"""One look at all processes, shared by everybody who asks for it at the same time.

Two hundred trees that stop together need a handful of scans, not some hundred each: whoever asks
while a scan runs waits for the next one, which began after the question and so answers it.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anyio import to_thread

from supervisor.launchers.process.batch import Batch
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.procfs import Stat, processes, read_nonce, read_stat
from supervisor.patience import Overdue, Patience

SCAN_DEADLINE_S = 5.0
"""A read that takes longer hangs; that process's memory is not read again."""
TRIES = 4
"""Each of them that hangs leaves one process out of the next."""
HUNG_MOST = 32
"""Bounds how many reads can hang at once, each in another process's memory. The scans themselves
run one at a time; where so many hang, nobody can be told to be gone any more."""
KERNEL_THREADS = 2
"""Parent of all threads of the kernel, which have no memory to read."""


class ScanFailedError(Exception):
    """No complete answer could be had: who lives is not known."""


class Census:
    """All processes at one moment, zombies too, sorted by what may tie them to one another."""

    def __init__(self, stats: Iterable[Stat], nonces: dict[int, str]) -> None:
        self.stats = {stat.pid: stat for stat in stats}
        self.nonces = nonces
        """Of those that were asked and answered."""
        self.children = defaultdict[int, list[Stat]](list)
        self.sessions = defaultdict[int, list[Stat]](list)
        self.bearers = defaultdict[str, list[Stat]](list)
        """By nonce."""
        for stat in self.stats.values():
            self.children[stat.ppid].append(stat)
            self.sessions[stat.session].append(stat)
            if nonce := nonces.get(stat.pid):
                self.bearers[nonce].append(stat)
        self.above = self._line(os.getpid())
        """This process and all that it descends from."""

    def _line(self, pid: int) -> frozenset[int]:
        line = set[int]()
        while pid > 0 and pid not in line:
            line.add(pid)
            pid = self.stats[pid].ppid if pid in self.stats else 0
        return frozenset(line)


@dataclass(slots=True)
class _Scan:
    """A scan under way in a thread, which says where it is in case it never comes back."""

    since: int
    silent: frozenset[tuple[int, int]]
    reading: tuple[int, int] | None = None

    def run(self) -> Census:
        stats = list(processes())
        nonces = dict[int, str]()
        for stat in stats:
            key = (stat.pid, stat.start)
            if stat.start < self.since or stat.ppid == KERNEL_THREADS or key in self.silent:
                continue
            self.reading = key
            if nonce := read_nonce(stat.pid):
                nonces[stat.pid] = nonce
        self.reading = None
        return Census(stats, nonces)


class CensusTaker:
    """Takes each census in a worker thread, so that neither work nor a hung read stops the loop."""

    def __init__(self) -> None:
        self._since: int | None = None
        self._silent = set[tuple[int, int]]()
        self._scans = Batch[None, Census](self._scan_for)
        self._rolls = Batch[Cgroup, Sequence[Stat]](self._call)
        self.patience = Patience("looking at processes", HUNG_MOST)

    def cover(self, start: int) -> None:
        """Ask everybody for a nonce who is not older than this. Nobody older can be a member."""
        self._since = start if self._since is None else min(self._since, start)

    async def take(self) -> Census:
        """A census that began after the call. Raises ``ScanFailedError``."""
        return await self._scans.ask(None)

    async def inside(self, cgroup: Cgroup) -> Sequence[Stat]:
        """Who lives in a cgroup, looked up after the call."""
        return await self._rolls.ask(cgroup)

    async def _call(self, cgroups: Sequence[Cgroup]) -> Sequence[Sequence[Stat]]:
        return await to_thread.run_sync(lambda: [_living(cgroup) for cgroup in cgroups])

    async def _scan_for(self, asked: Sequence[None]) -> Sequence[Census]:
        return [await self._scan()] * len(asked)

    async def _scan(self) -> Census:
        for _ in range(TRIES):
            scan = _Scan(self._since or 0, frozenset(self._silent))
            try:
                return await self.patience.run(scan.run, within_s=SCAN_DEADLINE_S)
            except Overdue:
                if scan.reading:
                    self._silent.add(scan.reading)
        raise ScanFailedError


def _living(cgroup: Cgroup) -> tuple[Stat, ...]:
    return tuple(stat for pid in cgroup.pids() if (stat := read_stat(pid)) and stat.alive)
