"""The cgroup v2 directory of one instance: who lives in it, and how all of it ends at one stroke.

A process is in it because it was put there before it was the engine, or because it was born there.
Neither a new session, nor a lost parent, nor a title over its environment changes that; only rights
do, and whoever was moved out is still known by the other signs.
"""

import errno
import os
import select
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

REMOVE_PAUSES_S = (0.0, 0.001, 0.01, 0.1)
"""Between tries to remove a directory that the kernel still holds for a moment after the last."""

_GONE = frozenset({errno.ENOENT, errno.ENODEV})
"""There is no such directory, or it was removed under an open file."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Reads take microseconds. ``join``, ``kill`` and ``remove`` wait for a lock of the whole
    kernel, up to some 15 ms each: call them from a worker thread.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def populated(self) -> bool:
        """Whether anyone lives in it or below; zombies do not. What is not there is empty.

        Raises ``OSError`` where it cannot be known.
        """
        try:
            return _is_populated((self.path / "cgroup.events").read_bytes())
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise

    @property
    def inode(self) -> int | None:
        """Which is the cgroup's id, as the kernel tells it of sockets."""
        try:
            return self.path.stat().st_ino
        except OSError:
            return None

    def inodes(self) -> frozenset[int]:
        """Its own and those below it: engines may make more of them."""
        found = (Cgroup(folder).inode for folder in self._folders())
        return frozenset(inode for inode in found if inode is not None)

    def pids(self) -> frozenset[int]:
        """Of everybody in it and below."""
        found = set[int]()
        for folder in self._folders():
            try:
                text = (folder / "cgroup.procs").read_bytes()
            except OSError:
                # Gone meanwhile; or threaded, and then the one above that is not has them all.
                continue
            found.update(map(int, text.split()))
        # As 0 appears who lives in a pid namespace that cannot be seen from here.
        return frozenset(found - {0})

    def join(self, pid: int) -> None:
        """Raises ``OSError``."""
        (self.path / "cgroup.procs").write_bytes(b"%d" % pid)

    def kill(self) -> bool:
        """KILL to everybody in it and below, who is born meanwhile too. Whether it was sent."""
        if os.getpid() in self.pids():
            return False
        try:
            (self.path / "cgroup.kill").write_bytes(b"1")
        except OSError:
            return False
        return True

    def remove(self) -> bool:
        """Whether it is gone. The kernel keeps one that anybody lives in.

        With the last of them goes the one above, which is made again with the next: so a daemon
        that was killed leaves nothing behind that no engine lives in.
        """
        for pause in REMOVE_PAUSES_S:
            time.sleep(pause)
            try:
                if self.populated():
                    return False
                for folder in reversed(self._folders()):
                    folder.rmdir()
            except OSError:
                continue
            with suppress(OSError):
                self.path.parent.rmdir()
            return True
        return False

    async def dispose(self) -> bool:
        """As ``remove``. No cancel cuts it short."""
        gone = False
        with anyio.CancelScope(shield=True):
            gone = await to_thread.run_sync(self.remove)
        return gone

    async def emptied(self, within_s: float) -> bool:
        """Whether nobody is left in it by then; returns when the kernel says so.

        It does by ``POLLPRI``, for which no event loop asks: so an epoll of its own does, and is
        what the loop waits for. Raises ``OSError`` where it cannot be known.
        """
        try:
            events = os.open(self.path / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _GONE:
                return True
            raise
        news = select.epoll()
        try:
            news.register(events, select.EPOLLPRI)
            with anyio.move_on_after(within_s) as limit:
                while _still_populated(events):
                    await anyio.wait_readable(news)
            return not limit.cancelled_caught
        finally:
            news.close()
            os.close(events)

    def _folders(self) -> list[Path]:
        """Itself first, whoever is below after what it is below of."""
        return [Path(folder) for folder, _, _ in os.walk(self.path)]


def _is_populated(events: bytes) -> bool:
    return b"populated 1" in events


def _still_populated(events: int) -> bool:
    """Reading is also what makes the descriptor wait for the next change."""
    try:
        return _is_populated(os.pread(events, 256, 0))
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise
