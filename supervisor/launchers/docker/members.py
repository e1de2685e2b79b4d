"""The processes of a container, as this host sees them. Blocks, like everything in ``/proc``.

All of them descend from the container's main process, for it is process 1 of their namespace and
inherits their orphans. Each is counted only where its cgroup names the container: a pid that the
engine gives means nothing where it runs in another machine (Docker Desktop) or namespace.
"""

import os
from pathlib import Path

from supervisor.contracts.event import MemberProcess
from supervisor.contracts.instance import Ownership
from supervisor.launchers.process.pidfd import open_pidfd
from supervisor.launchers.process.procfs import Stat, holds_socket, read_stat


def members_of(container: str, main: int) -> tuple[Stat, ...] | None:
    """The living ones, the main process first; ``None`` where they cannot be seen from here."""
    stat = read_stat(main) if main > 1 else None
    if stat is None or not _is_inside(main, container):
        return None
    found, line = {main: stat}, [main]
    while line:
        for child in _children(line.pop()):
            stat = read_stat(child)
            if child not in found and stat and _is_inside(child, container):
                found[child] = stat
                line.append(child)
    return tuple(stat for stat in found.values() if stat.alive)


def open_main(container: str, main: int) -> int | None:
    """A pidfd of the main process, where it is this host's."""
    try:
        pidfd = open_pidfd(main)
    except OSError:
        return None
    # Asked after the pidfd was there: so the cgroup is that very process's.
    if pidfd is not None and not _is_inside(main, container):
        os.close(pidfd)
        return None
    return pidfd


def described(stats: tuple[Stat, ...]) -> tuple[MemberProcess, ...]:
    return tuple(MemberProcess(pid=stat.pid, name=stat.name) for stat in stats)


def owner_of(inode: int, container: str, main: int) -> Ownership:
    """Whether a process of the container holds the socket."""
    stats = members_of(container, main)
    if stats is None or inode <= 0:
        return "unknown"
    answers = [holds_socket(stat.pid, inode) for stat in stats]
    if "holds" in answers:
        return "ours"
    return "unknown" if "denied" in answers else "foreign"


def _is_inside(pid: int, container: str) -> bool:
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:
        return found
    return found
