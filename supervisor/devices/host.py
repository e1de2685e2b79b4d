"""The machine itself: processor, memory, kernel. Limits of our cgroups count, for they are real."""

import math
import os
import platform
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import psutil

from supervisor.contracts.device import HostInfo
from supervisor.contracts.host import HostArch, HostPlatform
from supervisor.devices.limits import cpu_limit, memory_limit
from supervisor.devices.roots import HOST, Roots, text

_ARCHITECTURES: dict[str, HostArch] = {
    "x86_64": "x64",
    "amd64": "x64",
    "aarch64": "arm64",
    "arm64": "arm64",
}
_MODEL_NAMES = ("model name", "Model", "Hardware")
"""Keys of /proc/cpuinfo; Arm has no ``model name``."""


class HostMemory(NamedTuple):
    """Bytes."""

    total: int
    available: int
    swap: int | None


def host_platform() -> HostPlatform:
    """The contract's word for this system; ``linux`` for any other Unix."""
    if sys.platform == "darwin":
        return "darwin"
    return "win32" if sys.platform == "win32" else "linux"


def host_arch() -> HostArch:
    """The contract knows two architectures; a host of a third cannot run any of the engines."""
    machine = platform.machine().lower()
    if machine not in _ARCHITECTURES:
        raise RuntimeError(f"no engine runs on a {machine} host")
    return _ARCHITECTURES[machine]


def is_wsl(release: str) -> bool:
    """WSL's kernels say so in their release, for example ``5.15.153.1-microsoft-standard-WSL2``."""
    return "microsoft" in release.lower()


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the kernel gives it, else the architecture."""
    known: dict[str, str] = {}
    for line in (text(cpuinfo) or "").splitlines():
        key, _, value = line.partition(":")
        known.setdefault(key.strip(), value.strip())
    return next((known[key] for key in _MODEL_NAMES if known.get(key)), platform.machine())


def host_memory(roots: Roots = HOST, device_nodes: Collection[int] = ()) -> HostMemory:
    """What may be used here. ``device_nodes`` are NUMA nodes of a GPU's own memory (Grace Hopper),
    which the kernel counts in and the GPU's probe counts too.
    """
    facts = _meminfo(roots.proc / "meminfo")
    if "MemTotal" not in facts:
        memory = psutil.virtual_memory()
        return HostMemory(memory.total, memory.available, psutil.swap_memory().total)
    total = facts["MemTotal"]
    available = facts.get("MemAvailable", facts.get("MemFree", 0))
    for node in device_nodes:
        its = _meminfo(roots.sys / "devices" / "system" / "node" / f"node{node}" / "meminfo")
        total -= its.get("MemTotal", 0)
        available -= its.get("MemFree", 0)
    limit = memory_limit(roots)
    if limit is not None and limit.limit < total:
        total = limit.limit
        available = min(available, limit.limit - limit.used)
    return HostMemory(total, min(max(0, available), total), facts.get("SwapTotal"))


def sample_host(model: str, memory: HostMemory, roots: Roots = HOST) -> HostInfo:
    """Everything about the machine, now."""
    return HostInfo(
        cpu_model=model,
        cpu_count=_cpu_count(roots),
        memory_total_bytes=memory.total,
        memory_available_bytes=memory.available,
        swap_total_bytes=memory.swap,
        platform=host_platform(),
        arch=host_arch(),
        release=platform.release(),
        uptime_seconds=time.time() - psutil.boot_time()
        if sys.platform == "darwin"
        else time.clock_gettime(time.CLOCK_BOOTTIME),
    )


def _cpu_count(roots: Roots) -> int:
    """Those that we may run on, and no more than a quota gives time on."""
    count = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = cpu_limit(roots)
    return count if quota is None else max(1, min(count, math.ceil(quota)))


def _meminfo(path: Path) -> dict[str, int]:
    """Bytes by name. A node's file has ``Node 0 `` before each name."""
    found = {}
    for line in (text(path) or "").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdecimal():
            found[name.split()[-1]] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return found
