"""Whose a state directory is: the lock that one daemon holds on it, and its lasting id."""

import contextlib
import fcntl
import os
import re
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from supervisor.instances.durable import (
    Step,
    StoreError,
    make_folder,
    move_aside,
    no_step,
    write_durably,
)


class StateDirBusy(Exception):
    """Another daemon owns the directory."""

    def __init__(self, state_dir: Path, pid: int | None) -> None:
        who = "another daemon" if pid is None else f"the daemon with pid {pid}"
        super().__init__(f"the state directory {state_dir} belongs to {who}; use another one")
        self.pid: Final = pid
        """What the holder wrote of itself; ``None`` where that cannot be read."""


class StateDirLock:
    """Ownership, until it is released or the process ends, however that comes about."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> "StateDirLock":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def lock_state_dir(state_dir: str | Path) -> StateDirLock:
    """Take a state directory, making it if it is not there. Never waits.

    Raises ``StateDirBusy``, and ``StoreError`` where the directory cannot be used.
    """
    folder = Path(state_dir)
    make_folder(folder, keep_mode=True)
    path = folder / "lock"
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError.of(error, path) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise StoreError("io", f"{path} is no plain file; move it away")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                _sign(descriptor)
                return StateDirLock(descriptor)
        except BlockingIOError:
            busy = StateDirBusy(folder, _signature(descriptor))
            os.close(descriptor)
            raise busy from None
        except OSError as error:
            os.close(descriptor)
            raise StoreError.of(error, path) from error
        os.close(descriptor)  # somebody removed the file between the two calls: take the new one


def supervisor_id(state_dir: str | Path, step: Step = no_step) -> str:
    """The id of a state directory, made at its first use. To be called by its owner.

    Running engines carry the id in their environment and cgroup. So where its file was lost it is
    taken from the records, if they tell, before a new one would make strangers of them.
    """
    folder = Path(state_dir)
    make_folder(folder, keep_mode=True)
    path = folder / "supervisor-id"
    if path.is_file():
        with contextlib.suppress(OSError):
            kept = path.read_text(errors="replace").strip()
            if _is_id(kept):
                return kept
    elif os.path.lexists(path):
        move_aside(path)
    made = _id_in_records(folder) or secrets.token_hex(8)
    write_durably(path, f"{made}\n".encode(), step)
    return made


def _is_id(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{16}", text) is not None


def _id_in_records(folder: Path) -> str | None:
    for path in sorted((folder / "instances").glob("*.json")):
        if not path.is_file():
            continue
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            told = msgspec.json.decode(path.read_bytes())["supervision"]["supervisorId"]
            if isinstance(told, str) and _is_id(told):
                return told
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _signature(descriptor: int) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(os.pread(descriptor, 32, 0))
    return None
