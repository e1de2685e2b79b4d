"""The sign that nothing an engine does to itself wipes out: the lock on its log.

The log is locked as it is opened for a launch, and the lock belongs to what was opened, not to a
process: whoever still has it from the launch, through whatever forks and execs, as its output or
otherwise, keeps the log locked. So a survivor that left its session, lost its parents and wrote
over its environment still shows. Who reads the log, or opens it anew to write, has no part in it.

It proves no absence: an engine may send its output elsewhere, and some file systems have no locks.
"""

import fcntl
import os
from collections.abc import Iterable

from supervisor.launchers.process.procfs import Stat


def lock_log(fd: int) -> None:
    """To be inherited by all of a tree. Where there are no locks there is one sign less."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return


def log_is_held(path: str) -> bool:
    """Somebody still has the log from its launch. Blocks.

    Asked with a shared lock: so two who ask at the same time are not taken for a survivor.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def holders(path: str, among: Iterable[Stat]) -> tuple[Stat, ...]:
    """Those who have it, as far as their descriptors can be read. Blocks.

    The kernel names a lock at the very descriptors that it belongs to.
    """
    real = os.path.realpath(path)
    links = (real, f"{real} (deleted)")
    return tuple(stat for stat in among if _holds(stat.pid, links))


def _holds(pid: int, links: tuple[str, ...]) -> bool:
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_has_lock(pid, number) for number in descriptors if _link(pid, number) in links)


def _link(pid: int, number: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")
    except OSError:
        return ""


def _has_lock(pid: int, number: str) -> bool:
    try:
        with open(f"/proc/{pid}/fdinfo/{number}", "rb", buffering=0) as file:
            return b"FLOCK" in file.read()
    except OSError:
        return False
