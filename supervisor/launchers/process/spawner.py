"""From a plan to a stub behind a closed gate, and from there to the engine.

``Popen`` runs on the loop's own thread: it forks by vfork, a quarter of a millisecond, and a
child forked from a worker thread would be tied to that thread's life by much that a kernel offers.
"""

import errno
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from supervisor.contracts.engine import LaunchPlan
from supervisor.contracts.failure import SpawnReason
from supervisor.contracts.instance import ProcessHandle
from supervisor.launchers.base import Exit, SpawnError, SpawnTicket
from supervisor.launchers.process import stub
from supervisor.launchers.process.identity import handle_of
from supervisor.launchers.process.loglock import lock_log
from supervisor.launchers.process.pidfd import ExitWatch, open_pidfd
from supervisor.launchers.process.procfs import NONCE_VARIABLE
from supervisor.patience import Overdue, Patience

LOG_S = 5.0
"""To open a log, which takes no time unless its file system hangs."""
_logs = Patience("opening logs", 8)
GATES = 4
"""Stubs at once: each starts an interpreter, and a burst of them would starve the running ones."""

Limits = Mapping[int, tuple[int, int]]
"""Soft and hard ones, by ``RLIMIT_*``."""

_ALL_LIMITS = tuple(
    sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
)


def current_limits() -> Limits:
    return {limit: resource.getrlimit(limit) for limit in _ALL_LIMITS}


@dataclass(slots=True)
class Stub:
    """A child that waits for its gate. Whoever has it must open it or end it."""

    ref: ProcessHandle
    watch: ExitWatch
    link: socket.socket

    async def send(self, data: bytes) -> None:
        while data:
            try:
                data = data[self.link.send(data) :]
            except BlockingIOError:
                await anyio.wait_writable(self.link)

    async def outcome(self) -> bytes:
        """All that the stub says until its end of the link closes."""
        said = b""
        while True:
            try:
                part = self.link.recv(4096)
            except BlockingIOError:
                await anyio.wait_readable(self.link)
                continue
            except ConnectionResetError:
                return said
            if not part:
                return said
            said += part

    async def end(self) -> Exit:
        """Kill it, which loses nothing, and return when it is gone. No cancel cuts this short."""
        self.link.close()
        self.watch.kill()
        with anyio.CancelScope(shield=True):
            ended = await self.watch.wait()
        self.watch.close()
        return ended


@dataclass(slots=True)
class Spawner:
    """Forks stubs, a few at a time. ``limits`` are those that an engine starts with."""

    boot_id: str
    limits: Limits = field(default_factory=current_limits)
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    """A fork keeps the loop for half a millisecond: no two in one turn of it."""

    async def spawn(self, plan: LaunchPlan, ticket: SpawnTicket) -> Stub:
        """A stub that has been told what to become. The caller holds a gate for it."""
        workdir = plan.workdir if isinstance(plan.workdir, str) else None
        try:
            frame = stub.frame(plan.argv, ticket.env, workdir)
        except ValueError as error:
            raise SpawnError(str(error)) from error
        log = await _patient_log(ticket.log_path)
        try:
            async with self._turn:
                child = self._fork(log, ticket.nonce)
        finally:
            os.close(log)
        try:
            await child.send(frame)
        except (BrokenPipeError, ConnectionResetError):
            pass  # It died; opening the gate finds out.
        except BaseException:
            await child.end()
            raise
        return child

    def _fork(self, log: int, nonce: str) -> Stub:
        ours, theirs = _socketpair()
        with theirs:
            try:
                child = subprocess.Popen(
                    [interpreter(), "-I", "-S", "-c", stub.SOURCE],
                    stdin=theirs.fileno(),
                    stdout=log,
                    stderr=log,
                    env=_stub_environment(nonce),
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise SpawnError(f"no process could be started: {error.strerror}") from error
        try:
            pidfd = _must_open(child.pid)
        except OSError as error:
            ours.close()
            child.kill()
            child.wait()
            raise SpawnError(f"the process cannot be watched: {error.strerror}") from error
        # From here on the pidfd stands for the child, and alone reaps it. A Popen would complain
        # of a running child when it is collected, and would reap it behind our back: so it is
        # told that there is nothing left to do. The engine is to outlive us anyway.
        child.returncode = 0
        self._restore_limits(child.pid)
        return Stub(handle_of(child.pid, pidfd, self.boot_id), ExitWatch(pidfd), ours)

    def _restore_limits(self, pid: int) -> None:
        """Undo what the daemon changed for itself, such as more descriptors."""
        for limit, values in self.limits.items():
            if resource.getrlimit(limit) != values:
                try:
                    resource.prlimit(pid, limit, values)
                except (OSError, ValueError):
                    continue


def explain(report: stub.Report) -> SpawnError:
    """The error of a stub that could not become the engine."""
    text = os.strerror(report.errno)
    missing = report.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
    refused = report.errno in (errno.EACCES, errno.EPERM)
    reason: SpawnReason | None = None
    if report.step == "chdir":
        what = f"the working directory {report.path!r} cannot be entered"
        reason = "workdir-missing" if missing else "denied" if refused else None
    elif missing and report.exists:
        what = f"{report.path!r} is there, but the interpreter or loader that it names is not"
        reason = "not-executable"
    elif missing:
        what = f"there is no program {report.path!r}"
        reason = "binary-missing"
    else:
        what = f"{report.path!r} cannot be executed"
        if report.errno in (errno.ENOEXEC, errno.ETXTBSY, errno.EISDIR):
            reason = "not-executable"
        elif refused:
            reason = "not-executable" if report.exists else "denied"
    return SpawnError(f"{what}: {text}", reason)


async def _patient_log(path: str) -> int:
    """On a file system that hangs it would keep the gate for good."""
    try:
        return await _logs.run(_open_log, path, within_s=LOG_S, late=os.close)
    except Overdue as error:
        raise SpawnError(f"the log {path!r} cannot be opened: {error}", "log-unwritable") from None


def _open_log(path: str) -> int:
    try:
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise SpawnError(
            f"the log {path!r} cannot be opened: {error.strerror}",
            "disk-full" if full else "log-unwritable",
        ) from error
    lock_log(log)
    return log


def _socketpair() -> tuple[socket.socket, socket.socket]:
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise SpawnError(f"no gate could be made: {error.strerror}") from error
    ours.setblocking(False)
    return ours, theirs


def _must_open(pid: int) -> int:
    pidfd = open_pidfd(pid)
    if pidfd is None:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return pidfd


def interpreter() -> str:
    """The base one: a venv's would look for its home first, for a stub that needs no packages."""
    base: str | None = getattr(sys, "_base_executable", None)
    return base or sys.executable


def _stub_environment(nonce: str) -> dict[str, str]:
    """Little: the nonce, to be known by, and where an unusual interpreter has its library."""
    kept = {key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ}
    return {NONCE_VARIABLE: nonce} | kept
