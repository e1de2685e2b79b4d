"""Who belongs to one launch: found by cgroup, session, descent and nonce, and remembered.

A cgroup alone would do, where there is one, if nobody could be moved out of it. Of the other signs
no single one is enough. A worker that called ``setsid`` has left the session, a double-forked one
has lost its parent, one that wrote its title over the environment shows no nonce. But each is
caught by another sign, and whoever was seen once stays a member whatever it does later.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import to_thread

from supervisor.contracts.event import MemberProcess
from supervisor.contracts.instance import Ownership
from supervisor.launchers.process.census import (
    SCAN_DEADLINE_S,
    Census,
    CensusTaker,
    ScanFailedError,
)
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.loglock import holders, log_is_held
from supervisor.launchers.process.pidfd import ExitWatch
from supervisor.launchers.process.procfs import Stat, holds_socket, read_stat
from supervisor.patience import Overdue

LEAVING_S = 1.0
"""How long a dead process may take to leave its cgroup."""
LOG_TRIES = 3

T = TypeVar("T")


Members = tuple[Stat, ...]


@dataclass(frozen=True, slots=True)
class Sighting:
    """The tree at one moment, the dead left out."""

    members: Members
    """The main process first, then by age."""
    doubtful: bool
    """There are processes in what may have been our session, and nothing proves them ours."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What the members of a launch are known by."""

    leader: int
    start: int
    """Field 22 of the main process; with its pid, that one process."""
    nonce: str
    seen_at: int | None
    """A tick at which the main process had this pid. None: it ended before anybody watched it,
    and whoever has the pid now is a stranger."""


@dataclass(slots=True)
class Tree:
    """The members of one launch. What it holds are facts seen, never a state."""

    census: CensusTaker
    leader: int
    start: int
    nonce: str
    watch: ExitWatch | None = None
    """Of the main process; None if it had ended before."""
    cgroup: Cgroup | None = None
    log_path: str | None = None
    """Of the log that was locked for the launch."""
    _known: dict[int, int] = field(default_factory=dict)
    """Pid to start of everybody who was ever seen to be a member and may still be there."""

    def __post_init__(self) -> None:
        self.census.cover(self.start)

    async def look(self) -> Sighting:
        """Who lives now. Raises ``ScanFailedError``.

        That nobody does is said only when two scans in a row find nobody, for one can miss a
        process that forks and ends while the scan passes it.
        """
        seen = await self._see()
        if not seen.members:
            seen = await self._see()
        if not seen.members and self.cgroup and not await _emptied(self.cgroup):
            # Somebody is in there who does not show.
            raise ScanFailedError
        if not seen.members and self.log_path is not None:
            seen = await self._ask_log(self.log_path, seen)
        if self.watch and self.watch.alive() and self.leader not in {m.pid for m in seen.members}:
            # Such as under hidepid: then it hides others, too.
            raise ScanFailedError
        return seen

    async def owns_socket(self, inode: int) -> Ownership:
        """Asks the main process first, then whoever is known, and only then looks for others."""
        if inode <= 0:
            return "unknown"
        asked = ({self.leader: self.start} if self.watch else {}) | self._known
        if await self._holds(list(asked.items()), inode) == "ours":
            return "ours"
        seen = await self.look()
        answer = await self._holds([(stat.pid, stat.start) for stat in seen.members], inode)
        return "unknown" if answer == "foreign" and seen.doubtful else answer

    async def _holds(self, asked: list[tuple[int, int]], inode: int) -> Ownership:
        try:
            return await self.census.patience.run(
                _any_holds, asked, inode, within_s=SCAN_DEADLINE_S
            )
        except Overdue:
            return "unknown"

    @property
    def populated(self) -> bool:
        """Somebody lives in its cgroup: the quick answer, and only a yes is one.

        Raises ``ScanFailedError``.
        """
        try:
            return self.cgroup is not None and self.cgroup.populated()
        except OSError:
            raise ScanFailedError from None

    async def inside(self) -> Members:
        """Who lives in its cgroup, looked up in no time."""
        return () if self.cgroup is None else tuple(await self.census.inside(self.cgroup))

    async def owns_cgroup(self, inode: int) -> Ownership:
        """A yes is certain. A no holds only while all of the tree is where it was put."""
        if self.cgroup is None:
            return "unknown"
        if inode in await to_thread.run_sync(self.cgroup.inodes):
            return "ours"
        seen = await self.look()
        inside = await to_thread.run_sync(self.cgroup.pids)
        moved = any(stat.pid not in inside for stat in seen.members)
        return "unknown" if moved or seen.doubtful or not seen.members else "foreign"

    async def clear_away(self) -> None:
        """After the last member: what was made for them is left to nobody."""
        if self.cgroup is not None:
            await self.cgroup.dispose()

    async def _ask_log(self, path: str, seen: Sighting) -> Sighting:
        """The last question, put when nobody shows: whether somebody still has the log.

        Another launch below this one may have it, and is left alone. Somebody who cannot be found
        may be one of ours. But who ends while he is looked for is nobody: so it is asked again.
        """
        for _ in range(LOG_TRIES):
            if not await self._patiently(log_is_held, path):
                return seen
            census = await self.census.take()
            asked = [it for it in census.stats.values() if it.alive and it.pid not in census.above]
            found = await self._patiently(holders, path, asked)
            if found:
                members = tuple(
                    stat
                    for stat in found
                    if stat.start >= self.start
                    and census.nonces.get(stat.pid, self.nonce) == self.nonce
                )
                self._known |= {stat.pid: stat.start for stat in members}
                return Sighting(members, doubtful=False) if members else seen
        return Sighting((), doubtful=True)

    async def _patiently(self, work: Callable[..., T], *args: object) -> T:
        """A log can lie on a file system that hangs: then it says nothing."""
        try:
            return await self.census.patience.run(work, *args, within_s=SCAN_DEADLINE_S)
        except Overdue:
            raise ScanFailedError from None

    async def _see(self) -> Sighting:
        census = await self.census.take()
        return self._sort(census, await self.inside())

    def _sort(self, census: Census, inside: Members) -> Sighting:
        seen_at = self.watch.seen_at if self.watch else None
        signs = Signs(self.leader, self.start, self.nonce, seen_at)
        found, doubtful = find_members(census, signs, self._known, inside)
        self._known = {stat.pid: stat.start for stat in found}
        living = [stat for stat in found if stat.alive]
        living.sort(key=lambda stat: (stat.pid != self.leader, stat.start, stat.pid))
        return Sighting(tuple(living), doubtful)


async def _emptied(cgroup: Cgroup) -> bool:
    try:
        return await cgroup.emptied(LEAVING_S)
    except OSError:
        raise ScanFailedError from None


def describe(stats: Iterable[Stat]) -> tuple[MemberProcess, ...]:
    return tuple(MemberProcess(pid=stat.pid, name=stat.name) for stat in stats)


def find_members(
    census: Census, signs: Signs, known: dict[int, int], inside: Members = ()
) -> tuple[list[Stat], bool]:
    """The members in a census, zombies too, and whether doubtful ones are left.

    Left out by construction: this process and all above it, whoever is older than the main
    process, and whoever carries another launch's nonce, with all that descends from it. But who is
    ``inside`` the cgroup is a member whatever it carries: an environment is anybody's to write.
    """
    leader, nonce = signs.leader, signs.nonce
    lost = signs.seen_at is None

    def eligible(stat: Stat) -> bool:
        return (
            stat.start >= signs.start
            and not (lost and stat.pid == leader)
            and stat.pid not in census.above
            and census.nonces.get(stat.pid, nonce) == nonce
        )

    found = {stat.pid: stat for stat in filter(eligible, census.bearers.get(nonce, ()))}
    for pid, start in {**known, leader: signs.start}.items():
        stat = census.stats.get(pid)
        if stat and stat.start == start and eligible(stat):
            found[pid] = stat
    found |= {stat.pid: stat for stat in inside if stat.pid not in census.above}

    # A session's number is not given out again while anyone is in it. So one proved member proves
    # them all: one found already, or one who is older than our last sight of the main process, as
    # strangers under the same number are not. With none, the number may have come round.
    session = {stat.pid: stat for stat in filter(eligible, census.sessions.get(leader, ()))}
    horizon = signs.seen_at or 0
    if any(stat.session == leader for stat in found.values()) or any(
        stat.start < horizon for stat in session.values()
    ):
        found |= session

    line = list(found)
    while line:
        for child in filter(eligible, census.children.get(line.pop(), ())):
            if child.pid not in found:
                found[child.pid] = child
                line.append(child.pid)

    usurped = leader in census.stats and leader not in found
    strangers = any(stat.alive and stat.pid not in found for stat in session.values())
    return list(found.values()), strangers and not usurped


def _any_holds(asked: list[tuple[int, int]], inode: int) -> Ownership:
    denied = False
    for pid, start in asked:
        answer = holds_socket(pid, inode)
        if answer == "lacks":
            continue
        # Asked after the descriptors: so they were this very process's.
        stat = read_stat(pid)
        if stat and stat.start == start:
            if answer == "holds":
                return "ours"
            denied = True
    return "unknown" if denied else "foreign"
