"""The machine itself: processor, memory, kernel, and the volumes that our own files lie on."""

import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from supervisor.contracts.device import HostInfo, VolumeInfo
from supervisor.contracts.host import HostArch, HostPlatform

_ARCHITECTURES: dict[str, HostArch] = {
    "x86_64": "x64",
    "amd64": "x64",
    "aarch64": "arm64",
    "arm64": "arm64",
}


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
    try:
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        return platform.machine()
    return platform.machine()


def sample_host(model: str) -> HostInfo:
    """Memory, load-independent facts and uptime, now."""
    memory = psutil.virtual_memory()
    return HostInfo(
        cpu_model=model,
        cpu_count=os.cpu_count() or 1,
        memory_total_bytes=memory.total,
        memory_available_bytes=memory.available,
        swap_total_bytes=psutil.swap_memory().total,
        platform=host_platform(),
        arch=host_arch(),
        release=platform.release(),
        uptime_seconds=time.clock_gettime(time.CLOCK_BOOTTIME),
    )


def sample_volumes(paths: Sequence[str]) -> tuple[VolumeInfo, ...]:
    """The file systems under these paths, each once."""
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    found: dict[str, VolumeInfo] = {}
    for path in paths:
        mount = _mount_of(path)
        try:
            stats = os.statvfs(mount)
        except OSError:
            continue
        found[mount] = VolumeInfo(
            mount=mount,
            total_bytes=stats.f_frsize * stats.f_blocks,
            free_bytes=stats.f_frsize * stats.f_bavail,
            filesystem=mounts.get(mount),
            model=None,
            rotational=None,
        )
    return tuple(found.values())


def _mount_of(path: str) -> str:
    here = os.path.realpath(path)
    while not os.path.ismount(here):
        here = os.path.dirname(here)
    return here
