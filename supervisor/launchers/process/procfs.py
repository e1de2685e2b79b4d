"""What ``/proc`` says about processes. Plain reads; who may block on them is the caller's care.

A process can vanish between any two reads, and most of ``/proc`` can be closed to us. Both are
ordinary answers here and never exceptions, so that one odd entry cannot spoil a whole scan.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

NONCE_VARIABLE = "ENGINE_SUPERVISOR_NONCE"
_NONCE_PREFIX = NONCE_VARIABLE.encode() + b"="
_DEAD_STATES = frozenset("ZXx")

Holding = Literal["holds", "lacks", "denied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """One line of ``/proc/PID/stat``, as far as it tells whose a process is."""

    pid: int
    name: str
    state: str
    ppid: int
    session: int
    threads: int
    start: int
    """Ticks since the boot: with the pid, one process among all that the pid ever names."""

    @property
    def alive(self) -> bool:
        """A zombie is dead, unless only its main thread is: the others still hold everything."""
        return self.state not in _DEAD_STATES or (self.state == "Z" and self.threads > 1)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None


def parse_stat(line: bytes) -> Stat | None:
    """None for what is no such line. The name may hold spaces, parentheses and line breaks."""
    head, opened, rest = line.partition(b"(")
    name, closed, tail = rest.rpartition(b")")
    fields = tail.split()
    if not (opened and closed) or len(fields) < 20:
        return None
    try:
        return Stat(
            pid=int(head),
            name=name.decode(errors="replace"),
            state=fields[0].decode(),
            ppid=int(fields[1]),
            session=int(fields[3]),
            threads=int(fields[17]),
            start=int(fields[19]),
        )
    except ValueError:
        return None


def read_stat(pid: int) -> Stat | None:
    line = _read(f"/proc/{pid}/stat")
    return parse_stat(line) if line else None


def read_boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def processes() -> Iterator[Stat]:
    """Every process that can be read, zombies included."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and (stat := read_stat(int(name))):
            yield stat


def find_nonce(environ: bytes) -> str | None:
    """The nonce within an environment block. A title written over the block erases it."""
    for entry in environ.split(b"\0"):
        if entry.startswith(_NONCE_PREFIX):
            return os.fsdecode(entry.removeprefix(_NONCE_PREFIX))
    return None


def read_nonce(pid: int) -> str | None:
    """The nonce a process was started with; None where it has none or may not be read.

    Reading another process's memory waits for that process's own locks, which one that is stuck
    in a driver never gives back: call this only where a thread may hang.
    """
    environ = _read(f"/proc/{pid}/environ")
    return find_nonce(environ) if environ else None


def holds_socket(pid: int, inode: int) -> Holding:
    """Whether one of the process's descriptors is the socket."""
    wanted = f"socket:[{inode}]"
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except PermissionError:
        return "denied"
    except OSError:
        return "lacks"
    denied = False
    for descriptor in descriptors:
        try:
            if os.readlink(f"{folder}/{descriptor}") == wanted:
                return "holds"
        except PermissionError:
            denied = True
        except OSError:
            continue
    return "denied" if denied else "lacks"
