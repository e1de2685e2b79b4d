"""A process held by its pidfd: a name that cannot come to mean another process.

One reader on the loop serves every waiter, for a descriptor can be watched only once; and it is
the loop's own, not a task, because nobody lends a launcher a task group.
"""

import asyncio
import errno
import fcntl
import os
import select
import signal
import struct
import time
from contextlib import ExitStack

import anyio

from supervisor.launchers.base import Exit

CODE_PATIENCE_S = 0.005
"""How long the news of an end may wait for its cause."""
CODE_RETRY_S = 0.001

_NO_SUCH_PROCESS = frozenset({errno.ESRCH, errno.EINVAL, errno.ENOENT})
"""The latter two for a number that names a mere thread, on older and on newer kernels."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_INFO = struct.Struct("=QQ11Ii")  # struct pidfd_info of Linux 6.13: mask, cgroup id, ids, exit code
_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11


def open_pidfd(pid: int) -> int | None:
    """None where no process has this pid. Raises ``OSError`` where that cannot be known."""
    if pid <= 0:
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in _NO_SUCH_PROCESS:
            return None
        raise


def has_ended(pidfd: int) -> bool:
    """Zombies have; a process whose main thread alone has ended has not."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def send(pidfd: int, *signals: signal.Signals) -> bool:
    """Whether they arrived: not at a dead process, nor at one of other rights than ours."""
    try:
        for number in signals:
            signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _exit_of(wait_status: int) -> Exit:
    code = os.waitstatus_to_exitcode(wait_status)
    return Exit(code, None) if code >= 0 else Exit(None, signal_name(-code))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def take_exit(pidfd: int, stat: int | None = None) -> Exit | None:
    """How a process that has ended did so, if that can be known by now. A child is reaped.

    ``stat`` is what ``open_stat`` gave while it lived. ``Popen.poll`` would do for a child, but
    makes up a code of 0 where another had reaped it; and ``waitpid(-1)`` would take the codes of
    everybody else's children.
    """
    try:
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return _ask_kernel(pidfd) or (None if stat is None else _ask_zombie(stat))
    if result is None:
        return None
    if result.si_code == os.CLD_EXITED:
        return Exit(result.si_status, None)
    return Exit(None, signal_name(result.si_status))


def _ask_kernel(pidfd: int) -> Exit | None:
    """Linux 6.15 keeps the status of everybody's children, from the moment they are reaped."""
    buffer = bytearray(_INFO.size)
    _INFO.pack_into(buffer, 0, _INFO_EXIT, *[0] * 13)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(buffer)
    return _exit_of(status) if mask & _INFO_EXIT else None


def open_stat(pidfd: int) -> int | None:
    """The ``stat`` of somebody else's child, to be read once it is a zombie; ``None`` of our own,
    and where it cannot be had. Opened in time, for the news of an exit does not wait for ``/proc``
    to be walked; and it is that process's for good, like a pidfd.
    """
    if _is_child(pidfd):
        return None
    with ExitStack() as opened:
        try:
            pid = _pid_of(pidfd)
            stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, stat)
            still = _pid_of(pidfd) == pid
        except (OSError, ValueError):
            return None
        if still:
            opened.pop_all()
        return stat if still else None


def _pid_of(pidfd: int) -> int:
    """-1 once it was reaped. Raises ``OSError`` and ``ValueError`` where that cannot be read."""
    with open(f"/proc/self/fdinfo/{pidfd}", "rb", buffering=0) as file:
        return int(file.read().partition(b"\nPid:")[2].partition(b"\n")[0])


def _ask_zombie(stat: int) -> Exit | None:
    """The status of one that nobody has reaped yet, which is the last field.

    Under a PID 1 that reaps late this is known a good while before the kernel's answer. To whom
    the kernel does not tell the field it shows 0, so a zero counts only of a process of our user.
    """
    try:
        state, *fields = os.pread(stat, 4096, 0).rpartition(b")")[2].split()
        status = int(fields[48])
        ours = os.fstat(stat).st_uid == os.geteuid()
    except (OSError, ValueError, IndexError):
        return None
    return _exit_of(status) if state == b"Z" and (status or ours) else None


def _is_child(pidfd: int) -> bool:
    try:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def ticks() -> int:
    """Now, as the kernel counts the starts of processes."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * _TICKS_PER_S // 1_000_000_000


class ExitWatch:
    """Waits for the end of one process, child or not, and owns its pidfd."""

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self._loop = asyncio.get_running_loop()
        self._settled = anyio.Event()
        self._exit: Exit | None = None
        self._closed = False
        self._stat = open_stat(pidfd)
        self.seen_at = 0
        """The latest tick, as of ``Stat.start``, at which nobody else can have had its pid."""
        self.alive()
        self._loop.add_reader(pidfd, self._ended)

    @property
    def pidfd(self) -> int:
        """To be copied, not closed."""
        return self._pidfd

    @property
    def exit(self) -> Exit | None:
        """Set once the end has been told to the waiters."""
        return self._exit

    def alive(self) -> bool:
        """Asked of the kernel, for the loop may not have come round to the news yet."""
        now = ticks()
        if self._exit or self._closed or has_ended(self._pidfd):
            return False
        self.seen_at = now
        return True

    async def wait(self) -> Exit:
        await self._settled.wait()
        if self._exit is None:
            raise anyio.ClosedResourceError
        return self._exit

    def send(self, *signals: signal.Signals) -> bool:
        return not self._closed and send(self._pidfd, *signals)

    def kill(self) -> bool:
        return self.send(signal.SIGKILL)

    def close(self) -> None:
        """Let go of the process, and of whoever still waits for it."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            if self._stat is not None:
                os.close(self._stat)
            self._settled.set()

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        now = ticks()
        if self._stat is None and _is_child(self._pidfd):
            self.seen_at = now
        self._settle(self._loop.time() + CODE_PATIENCE_S)

    def _settle(self, deadline: float) -> None:
        if self._closed:
            return
        self._exit = take_exit(self._pidfd, self._stat)
        if self._exit is None and self._loop.time() < deadline:
            self._loop.call_later(CODE_RETRY_S, self._settle, deadline)
            return
        self._exit = self._exit or Exit(None, None)
        self._settled.set()
