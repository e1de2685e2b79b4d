"""The daemon's line to systemd: datagrams of ``KEY=value`` lines, and descriptors beside them.

Written out instead of linked: it is a dozen lines, and ``libsystemd`` is a C library that not every
host has. Nothing here waits and nothing here raises, for systemd's troubles are not the engines'.
"""

import array
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import structlog

log = structlog.get_logger(__name__)


class Notifier:
    """``sd_notify``. Does nothing where nobody listens, which is anywhere but under systemd."""

    def __init__(self, address: str | None) -> None:
        # "@" stands for the zero byte that begins an abstract address.
        self._address = f"\0{address[1:]}" if address and address[0] == "@" else address
        self._complained = False

    @property
    def listening(self) -> bool:
        return self._address is not None

    def send(self, *lines: str, fds: tuple[int, ...] = ()) -> bool:
        """False where it is worth trying again: systemd has not read what it was told before."""
        if self._address is None:
            return True
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as link:
                link.sendmsg(["\n".join(lines).encode()], passed, 0, self._address)
        except OSError as error:
            if not self._complained:
                self._complained = True
                log.warning("systemd cannot be told", lines=lines[:1], error=str(error))
            return error.errno not in (errno.EAGAIN, errno.ENOBUFS)
        return True

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Around a reload, so that ``systemctl reload`` and units ordered after it wait for it."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self.send("READY=1")


class FdStore:
    """Descriptors that systemd keeps for the next daemon, by name; here the pidfds of engines.

    A pidfd tells how its process ended even where the daemon was down at that moment, as long as
    somebody holds it. Names have no colon in them, such as ``engine-<nonce>``.
    """

    def __init__(self, notifier: Notifier, stored: Mapping[str, int] | None = None) -> None:
        self.stored = dict(stored or {})
        """What the daemon before this one had put in. Whoever takes one out closes it."""
        self._notifier = notifier
        self._kept = set(self.stored)

    def keep(self, name: str, fd: int) -> None:
        """Leave a copy with systemd; ``fd`` stays the caller's. Does nothing for a name it has.

        ``FDPOLL=0``: else systemd drops a pidfd at the very moment that it is kept for.
        """
        if name not in self._kept and self._notifier.listening:
            self._kept.add(name)
            self._notifier.send("FDSTORE=1", f"FDNAME={name}", "FDPOLL=0", fds=(fd,))

    def drop(self, name: str) -> None:
        """Let go of what has this name, which may be nothing."""
        if (fd := self.stored.pop(name, None)) is not None:
            os.close(fd)
        if name in self._kept:
            self._kept.discard(name)
            self._notifier.send("FDSTOREREMOVE=1", f"FDNAME={name}")

    def drop_unclaimed(self, wanted: Callable[[str], bool] = lambda name: False) -> None:
        """After every record was taken up: what is still ``stored`` is of instances long gone."""
        for name in [name for name in self.stored if not wanted(name)]:
            self.drop(name)
