"""What a supervisor costs the host: processor time, memory and wake-ups of all its processes.

All of them but the engines and what these started: s6 has one for each service, circus has none
but itself. Processor time is read from the kernel's clock of each process, which counts its
threads, the ended ones too, in nanoseconds (``schedstat`` tells of the first thread only, ``stat``
counts ticks of 10 ms).
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
_PROCESS_CLOCK = 2
"""``CPUCLOCK_SCHED``; the rest of a clock's number is the pid, inverted."""


def supervisors(pid: int, engine: str) -> list[int]:
    """A process and those below it, without engines."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_bytes()
                parent = int(stat.rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found, left = [], [pid]
    while left:
        one = left.pop()
        if _runs(one, engine):
            continue
        found.append(one)
        left += children.get(one, [])
    return found


def _runs(pid: int, program: str) -> bool:
    with suppress(OSError):
        return os.fsencode(program) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:3]
    return False


@dataclass(frozen=True, slots=True)
class Spent:
    """Up to a moment, by all processes together."""

    at_ns: int
    cpu_ns: int
    switches: dict[int, int]
    """Of each thread that lives, by its id."""

    def percent_since(self, earlier: "Spent") -> float:
        """Of one core."""
        return 100 * (self.cpu_ns - earlier.cpu_ns) / (self.at_ns - earlier.at_ns)

    def wakeups_since(self, earlier: "Spent") -> float:
        """A second. Those of threads that have ended meanwhile are lost."""
        made = sum(now - earlier.switches.get(tid, 0) for tid, now in self.switches.items())
        return made * 1e9 / (self.at_ns - earlier.at_ns)


def spent(pids: Iterable[int]) -> Spent:
    cpu_ns, switches = 0, {}
    for pid in pids:
        cpu_ns += time.clock_gettime_ns((~pid << 3) | _PROCESS_CLOCK)
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                switches[int(task.name)] = _field(task / "status", "voluntary_ctxt_switches")
    return Spent(time.monotonic_ns(), cpu_ns, switches)


def memory_mb(pids: Iterable[int]) -> tuple[float, float]:
    """Resident, and in fair shares of what several processes map."""
    rss = pss = 0
    for pid in pids:
        rollup = Path(f"/proc/{pid}/smaps_rollup")
        rss += _field(rollup, "Rss") * 1024
        pss += _field(rollup, "Pss") * 1024
    return rss / MB, pss / MB


def _field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise RuntimeError(f"{path} has no {name}")
