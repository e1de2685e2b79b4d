"""Files that a power loss cannot tear: the old content or the new, whole, and never in between.

A file is written beside its place, flushed, renamed over it, and the folder is flushed, for without
the last two flushes a rename can outlive its content (a file of the right length, all zeroes) or
be forgotten. Everything here blocks on the disk and belongs in a worker thread.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

StoreReason = Literal["disk-full", "denied", "io", "newer-schema", "ended"]

Step = Callable[[str], None]
"""Told the name of each step just before it is taken. A test kills the daemon in it, or raises the
``OSError`` that the step shall fail with."""

_REASONS: Final[dict[int, StoreReason]] = {
    errno.ENOSPC: "disk-full",
    errno.EDQUOT: "disk-full",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
}


class StoreError(Exception):
    """A file of the state directory was not changed as asked; ``reason`` says why.

    ``landed`` tells the one case in which the change is there all the same: the folder's flush
    failed after the rename (or the unlink), so a power loss may still undo it.
    """

    def __init__(self, reason: StoreReason, detail: str, *, landed: bool = False) -> None:
        super().__init__(detail)
        self.reason: Final = reason
        self.detail: Final = detail
        self.landed: Final = landed

    @classmethod
    def of(cls, error: OSError, path: Path, *, landed: bool = False) -> "StoreError":
        reason = _REASONS.get(error.errno or 0, "io")
        return cls(reason, f"{path}: {error.strerror or error}", landed=landed)


def no_step(_: str) -> None:
    """The hook outside of tests."""


def temp_of(path: Path) -> Path:
    """Where the next content of ``path`` is written. No instance's name starts with a dot."""
    return path.with_name(f".{path.name}.tmp")


def write_durably(path: Path, data: bytes, step: Step = no_step) -> None:
    """Replace a file's content. Raises ``StoreError``; then the old content is still in place
    (unless it says ``landed``) and nothing is left beside it.
    """
    temp = temp_of(path)
    landed = False
    try:
        step("create")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temp, flags, 0o600)
        try:
            os.fchmod(descriptor, 0o600)  # a leftover, or an umask, may say otherwise
            step("write")
            _write_all(descriptor, data)
            step("fsync")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        step("rename")
        temp.replace(path)
        landed = True
        step("fsync-dir")
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)
        raise StoreError.of(error, path, landed=landed) from error


def unlink_durably(path: Path, step: Step = no_step) -> None:
    """Remove a file, or an empty folder; what is not there is removed already. Raises
    ``StoreError``.
    """
    landed = False
    try:
        step("unlink")
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        landed = True
        step("fsync-dir")
        with contextlib.suppress(FileNotFoundError):  # the folder is gone, and the file with it
            sync_folder(path.parent)
    except OSError as error:
        raise StoreError.of(error, path, landed=landed) from error


def make_folder(path: Path, *, keep_mode: bool = False) -> None:
    """Make a folder that is ours alone, its parents too where they are missing. Raises
    ``StoreError``. One that is there is closed to others, unless its mode is somebody's choice.
    """
    try:
        made = not path.is_dir()
        if made:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(path.parent)
        if made or not keep_mode:
            path.chmod(0o700)
    except OSError as error:
        raise StoreError.of(error, path) from error


def move_aside(path: Path) -> Path:
    """Move what is in the way, whatever it is, to a free name beside it. Raises ``StoreError``."""
    number, aside = 0, path.with_name(f"{path.name}.foreign")
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.foreign.{number}")
    try:
        path.rename(aside)
    except OSError as error:
        raise StoreError.of(error, path) from error
    return aside


def sync_folder(path: Path) -> None:
    """Flush what a folder lists. File systems that have no such call (EINVAL) need none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
