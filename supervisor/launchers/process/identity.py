"""Whether a process is the one that a record names. A pid alone says nothing: it comes round."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

from anyio import to_thread
from msgspec import UNSET

from supervisor.contracts.instance import ProcessHandle
from supervisor.launchers.process import pidfd as pidfds
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.procfs import read_nonce, read_stat
from supervisor.patience import Overdue, Patience

NONCE_DEADLINE_S = 1.0
_nonces = Patience("reading the marks of processes", 32)


class Verdict(Enum):
    """Only ``OURS`` may be signalled, and only ``GONE`` frees anything."""

    OURS = "ours"
    GONE = "gone"
    """Nobody has this pid, or somebody who is certainly not the one we started."""
    NOT_OURS = "not ours"
    """The very process that the record names says that another launch started it."""
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What can be observed of the process that has the pid now; None: not to be had."""

    inode: int | None
    """Of its pidfd, where that is unique."""
    start: int | None
    """Field 22 of its ``stat``."""
    nonce: str | None
    inside: bool = False
    """It is in the cgroup that was made for the launch. Where it is not, it may have been moved."""


def start_token(boot_id: str, start: int) -> str:
    return f"{boot_id}:{start}"


def start_of(ref: ProcessHandle) -> tuple[str, int] | None:
    """Boot id and field 22 of a record's token, or None if it holds no such thing."""
    boot, colon, ticks = (ref.start_token or "").rpartition(":")
    return (boot, int(ticks)) if colon and boot and ticks.isdecimal() else None


def judge(ref: ProcessHandle, nonce: str, boot_id: str, seen: Seen | None) -> Verdict:
    """``seen`` is None if nobody has the pid. The one rule for whom we may touch."""
    if ref.pid <= 1 or ref.pid == os.getpid() or seen is None:
        return Verdict.GONE
    token = start_of(ref)
    if token is None:
        return Verdict.CANNOT_TELL
    boot, start = token
    if boot != boot_id or (seen.start is not None and seen.start != start):
        return Verdict.GONE
    exact = ref.pidfd_inode is not UNSET and seen.inode is not None
    if exact and ref.pidfd_inode != seen.inode:
        return Verdict.GONE
    if seen.nonce is not None and seen.nonce != nonce:
        return Verdict.NOT_OURS
    if exact or (seen.start is not None and (seen.nonce is not None or seen.inside)):
        return Verdict.OURS
    return Verdict.CANNOT_TELL


@cache
def _pidfs() -> bool:
    """Whether pidfds have a file system of their own, and so an inode for each process.

    Elsewhere they all share the one inode of anonymous files, as an eventfd does.
    """
    pidfd, other = os.pidfd_open(os.getpid()), os.eventfd(0)
    try:
        return os.fstat(pidfd).st_dev != os.fstat(other).st_dev
    finally:
        os.close(pidfd)
        os.close(other)


def unique_inode(pidfd: int) -> int | None:
    """The same for every pidfd of a process, never given twice in one boot."""
    return os.fstat(pidfd).st_ino if _pidfs() else None


def handle_of(pid: int, pidfd: int, boot_id: str) -> ProcessHandle:
    """The handle of a process that is certainly ours: a child that nobody has reaped."""
    stat = read_stat(pid)
    inode = unique_inode(pidfd)
    return ProcessHandle(
        pid=pid,
        start_token=start_token(boot_id, stat.start) if stat else None,
        pidfd_inode=UNSET if inode is None else inode,
    )


async def examine(
    ref: ProcessHandle, nonce: str, boot_id: str, cgroup: Cgroup | None = None
) -> tuple[Verdict, int | None]:
    """The verdict, and a pidfd of the judged process unless it is gone; the caller closes it.

    The pidfd is opened first and asked last, so all that was read in between is of one process.
    """
    if ref.pid <= 1 or ref.pid == os.getpid():
        return Verdict.GONE, None
    try:
        pidfd = pidfds.open_pidfd(ref.pid)
    except OSError:
        return Verdict.CANNOT_TELL, None
    if pidfd is None:
        return Verdict.GONE, None
    with _closed_on_error(pidfd):
        stat = read_stat(ref.pid)
        seen = Seen(
            inode=unique_inode(pidfd),
            start=stat.start if stat else None,
            nonce=await _patient_nonce(ref.pid),
        )
        if cgroup and seen.nonce is None:
            seen = replace(seen, inside=ref.pid in await to_thread.run_sync(cgroup.pids))
        verdict = judge(ref, nonce, boot_id, seen)
        if verdict is not Verdict.OURS and pidfds.has_ended(pidfd):
            # Whoever it was: with it, ours is dead too.
            verdict = Verdict.GONE
    if verdict is Verdict.GONE:
        os.close(pidfd)
        return verdict, None
    return verdict, pidfd


async def _patient_nonce(pid: int) -> str | None:
    try:
        return await _nonces.run(read_nonce, pid, within_s=NONCE_DEADLINE_S)
    except Overdue:
        return None  # which proves nothing either way


@contextmanager
def _closed_on_error(descriptor: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise
