"""The daemon's listening socket: whose it is, who can reach it, and whom it must not displace."""

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MAX_PATH_BYTES = 107
"""What ``sockaddr_un`` holds, less its final zero."""

BACKLOG = 512
LOCK_SECONDS = 5.0


class SocketError(Exception):
    """The daemon cannot listen at this path; the text says why, and what would help."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound and listening socket, and which file it made."""

    sock: socket.socket
    path: str
    identity: tuple[int, int] | None
    """None where the file is another's, who listens on when we do not."""

    def close(self) -> None:
        """Stop listening, and take the file away if it is ours and still this socket's."""
        self.sock.close()
        if self.identity is None:
            return
        with suppress(OSError):
            if _identity(os.lstat(self.path)) == self.identity:
                os.unlink(self.path)


def listen(path: str, mode: int = 0o600) -> Listener:
    """Listen at ``path``, for which the file gets ``mode``. Raises ``SocketError``.

    A socket that nobody answers on is taken over; one that somebody answers on, and anything that
    is no socket, stays as it is. The directory is made, for its owner alone, where it is missing.
    Changes the process's umask for a moment, so it belongs before the daemon starts its work.
    """
    length = len(os.fsencode(path))
    if length > MAX_PATH_BYTES:
        raise SocketError(
            f"the socket path has {length} bytes and the system's limit is {MAX_PATH_BYTES}: "
            f"{path}; set ENGINE_SUPERVISOR_SOCKET (or `socket` in the config) to a shorter one"
        )
    directory = Path(path).absolute().parent
    try:
        _prepare(directory)
        with _locked(directory):
            _clear(path)
            return _bind(path, mode)
    except OSError as error:
        raise SocketError(f"cannot listen at {path}: {error.strerror or error}") from error


def adopt(fd: int) -> Listener:
    """Serve on a socket that systemd holds, and its file with it. Takes ``fd`` over.

    Connections that are not accepted when the daemon leaves wait there for the next one.
    """
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    path = sock.getsockname()
    stream = sock.family == socket.AF_UNIX and sock.type == socket.SOCK_STREAM
    if not (stream and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)):
        sock.close()
        raise SocketError(f"descriptor {fd} is no listening Unix stream socket")
    if not isinstance(path, str):
        sock.close()
        raise SocketError(f"descriptor {fd} listens at the abstract address {path!r}, not a path")
    return Listener(sock, path, None)


def _prepare(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise SocketError(
            f"{directory} can be written by everyone, who could replace the socket in it; "
            f"use a directory of your own, or `chmod o-w {directory}`"
        )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One daemon at a time looks at a socket and replaces it.

    Between the look and the removal another daemon could have taken the stale socket over, and it
    is its live one that would go. The lock is on the directory itself: no lock file stays behind.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SocketError(f"another process keeps {directory} locked") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def _clear(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SocketError(f"{path} is there and is not a socket; it was left as it is")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        answer = probe.connect_ex(path)
    if answer == errno.ECONNREFUSED:
        os.unlink(path)
    elif answer in (0, errno.EAGAIN, errno.EINPROGRESS):
        raise SocketError(f"already running: somebody answers at {path}")
    elif answer != errno.ENOENT:
        raise SocketError(
            f"cannot tell whether somebody answers at {path} ({os.strerror(answer)}); "
            "it was left as it is"
        )


def _bind(path: str, mode: int) -> Listener:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        sock.listen(BACKLOG)
        sock.setblocking(False)
        if mode != 0o600:
            os.chmod(path, mode)
        return Listener(sock, path, _identity(os.lstat(path)))
    except BaseException:
        sock.close()
        raise


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
