"""The daemon's line to systemd: datagrams of ``KEY=value`` lines, and descriptors beside them.

Written out instead of linked: it is a dozen lines, and ``libsystemd`` is a C library that not every
host has. Nothing here waits and nothing here raises, for systemd's troubles are not the engines'.
"""

import array
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
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
        """False where it did not arrive, such as while systemd is too busy to read."""
        if self._address is None:
            return True
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as link:
                link.sendmsg(["\n".join(lines).encode()], passed, 0, self._address)
        except OSError as error:
            if not self._complained:
                self._complained = True
                log.warning("systemd cannot be told", message=lines[0], error=str(error))
            return False
        return True

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Around a reload, so that systemd knows when it is over."""
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self.send("READY=1")


class FdStore:
    """Descriptors that systemd keeps for the next daemon, by name: the pidfds of engines.

    A pidfd tells how its process ended even where no daemon ran at that moment, if somebody held
    it. A name is printable ASCII without a colon, such as ``engine-<nonce>``.
    """

    def __init__(self, notifier: Notifier, stored: Mapping[str, int] | None = None) -> None:
        self.stored = dict(stored or {})
        """What the daemon before this one left. Who needs one pops it, and closes it then."""
        self._notifier = notifier
        self._kept = set(self.stored)

    def keep(self, name: str, fd: int) -> None:
        """Leave a copy with systemd, once for each name; ``fd`` stays the caller's.

        ``FDPOLL=0``, or systemd drops a pidfd at the very moment for which it is kept.
        """
        if name in self._kept or not self._notifier.listening:
            return
        if self._notifier.send("FDSTORE=1", f"FDNAME={name}", "FDPOLL=0", fds=(fd,)):
            self._kept.add(name)

    def take(self, name: str) -> int | None:
        """What the daemon before this one left; the caller's to close. systemd's copy stays."""
        return self.stored.pop(name, None)

    def drop(self, name: str) -> None:
        """Forget what has this name, if anything has."""
        if (fd := self.stored.pop(name, None)) is not None:
            os.close(fd)
        if name in self._kept:
            self._kept.remove(name)
            self._notifier.send("FDSTOREREMOVE=1", f"FDNAME={name}")

    def drop_unknown(self, nonces: Iterable[str]) -> None:
        """Once the records are read: what belongs to none of their launches is long over."""
        known = set(nonces)
        for name in tuple(self.stored):
            if not any(nonce in name for nonce in known):
                self.drop(name)
