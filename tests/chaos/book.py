"""What engines wrote about themselves, read without any help of the daemon's."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """One line of the book."""

    what: Literal["start", "child", "term", "exit", "clash"]
    at: int
    name: str
    nonce: str
    pid: int
    start: int
    devices: tuple[str, ...]
    device: str

    @property
    def key(self) -> tuple[int, int]:
        """One process of this boot."""
        return self.pid, self.start

    @property
    def lives(self) -> bool:
        return lives(self.pid, self.start)


class Book:
    """Grows while engines run; each reading goes on where the last one ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self._read = 0

    def read(self) -> list[Entry]:
        """Everything up to now."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(newline)
            self.entries += [msgspec.json.decode(it, type=Entry) for it in whole.splitlines()]
        return self.entries

    def mains(self, *, nonce: str | None = None) -> list[Entry]:
        """Engines that ever started, of one launch or of all."""
        return [it for it in self.read() if it.what == "start" and nonce in (None, it.nonce)]

    def living(self) -> list[Entry]:
        """Processes that still are, main ones and children."""
        seen = {it.key: it for it in self.read() if it.what in ("start", "child")}
        return [it for it in seen.values() if it.lives]

    def kill_living(self) -> None:
        """Whatever is left of a failed test must not disturb the next one."""
        for entry in self.living():
            kill(entry)


def field_22(pid: int) -> tuple[str, int] | None:
    """State and start of whoever has this pid."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[19])


def lives(pid: int, start: int) -> bool:
    """A zombie does not."""
    found = field_22(pid)
    return found is not None and found[1] == start and found[0] not in "ZX"


def kill(entry: Entry) -> bool:
    """By a pidfd, judged after it was opened, so that it cannot be anybody else's."""
    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(entry.pid)
        try:
            if entry.lives:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def bearers(nonces: Iterable[str]) -> list[int]:
    """Living processes with one of these nonces in their environment, noted in the book or not."""
    wanted = {f"ENGINE_SUPERVISOR_NONCE={nonce}".encode() for nonce in nonces}
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError):
                if wanted & set(Path("/proc", entry, "environ").read_bytes().split(b"\0")):
                    found.append(int(entry))
    return found
