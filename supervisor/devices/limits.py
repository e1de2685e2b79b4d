"""What the control groups that we live in leave us of the machine's memory and processors.

A group is bound by every one above it, so all are read up to the root that we can see. In a
container the path in ``/proc/self/cgroup`` may be the host's; then only the visible root is read.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from supervisor.devices.roots import Roots, number, text

_BOUNDLESS = 1 << 60
"""Version 1 writes "no limit" as the largest number of pages."""


class MemoryLimit(NamedTuple):
    """Bytes."""

    limit: int
    used: int
    """Without what the kernel would give back at once, such as cached files."""


def memory_limit(roots: Roots) -> MemoryLimit | None:
    """The limit that leaves least; ``None`` where nobody set one."""
    found: list[MemoryLimit] = []
    for group in _groups(roots, ""):
        limit = number(group / "memory.max")  # "max" is no number
        if limit is not None and limit >= 0:
            found.append(_limit(group, limit, "memory.current", "inactive_file"))
    for group in _groups(roots, "memory"):
        limit = number(group / "memory.limit_in_bytes")
        if limit is not None and 0 <= limit < _BOUNDLESS:
            found.append(_limit(group, limit, "memory.usage_in_bytes", "total_inactive_file"))
    return min(found, key=lambda it: it.limit, default=None)


def cpu_limit(roots: Roots) -> float | None:
    """Processors' worth of time; ``None`` where nobody set a quota."""
    found: list[float] = []
    for group in _groups(roots, ""):
        match (text(group / "cpu.max") or "").split():
            case [quota, period] if quota.isdecimal() and period.isdecimal():
                if int(quota) and int(period):
                    found.append(int(quota) / int(period))
    for group in _groups(roots, "cpu"):
        spent, every = number(group / "cpu.cfs_quota_us"), number(group / "cpu.cfs_period_us")
        if spent and every and spent > 0 and every > 0:
            found.append(spent / every)
    return min(found, default=None)


def _limit(group: Path, limit: int, usage: str, reclaimable: str) -> MemoryLimit:
    used = number(group / usage) or 0
    for line in (text(group / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == reclaimable and value.isdecimal():
            used -= int(value)
    return MemoryLimit(limit, max(0, used))


def _groups(roots: Roots, controller: str) -> Iterator[Path]:
    """Our group of a controller (``""``: of version 2) and all above it that can be seen."""
    base = roots.sys / "fs" / "cgroup"
    for line in (text(roots.proc / "self" / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, told, path = rest.partition(":")
        if not told or controller not in controllers.split(","):
            continue
        mounts = [base / controllers, base / controller] if controller else [base, base / "unified"]
        for mount in mounts:
            here = PurePosixPath(path.lstrip("/"))
            for part in (here, *here.parents):
                if (mount / part).is_dir():
                    yield mount / part
