"""Facts that a figure cannot be read without: the machine, what ran, and how busy it was."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from supervisor.devices.host import cpu_model

PACKAGES = ("engine-supervisor", "aiohttp", "anyio", "msgspec", "psutil", "structlog")


def facts(scratch: Path) -> dict[str, object]:
    """For the JSON file."""
    return {
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memoryBytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "realtime": os.sched_getscheduler(0) == os.SCHED_FIFO,
        "pid1": Path("/proc/1/comm").read_text().strip(),
        "scratchFilesystem": file_system(scratch),
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in PACKAGES},
        "commit": commit(),
    }


def file_system(path: Path) -> str | None:
    """Where records are flushed decides a good part of a launch."""
    best, kind = "", None
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, fs, *_ = line.split()
        if path.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, fs
    return kind


def commit() -> str | None:
    """With a ``+`` where the checkout holds changes; ``None`` outside of one."""
    here = Path(__file__).parent
    try:
        head = _git(here, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(here, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
