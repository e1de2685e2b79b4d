"""The file systems that models, state and logs lie on.

A server that is gone makes every call on its mount wait for ever; so a network mount is known by
the kernel's table alone, and neither its size nor anything below it is asked for.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from supervisor.contracts.device import VolumeInfo
from supervisor.devices.roots import HOST, Roots, listing, number, text

NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs"),
        *("ocfs2", "gfs2", "orangefs", "pvfs2", "virtiofs", "davfs", "wekafs", "glusterfs"),
        *("autofs", "fuse"),  # touching an automount waits for its server; a fuse may be any
    }
)
_MOST_LINKS = 40
"""As the kernel's own bound on symbolic links in one path."""
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A line of ``/proc/self/mountinfo``."""

    at: str
    filesystem: str
    source: str
    number: str
    """Of the block device, ``major:minor``."""

    @property
    def network(self) -> bool:
        return self.filesystem in NETWORK or self.filesystem.startswith("fuse.")


def sample_volumes(paths: Iterable[str], roots: Roots = HOST) -> tuple[VolumeInfo, ...]:
    """The file systems under these absolute paths, each once."""
    mounts = read_mounts(roots)
    found: dict[str, VolumeInfo] = {}
    for path in paths:
        mount = mount_of(path, mounts)
        if mount is not None and mount.at not in found:
            volume = _volume(mount, roots)
            if volume is not None:
                found[mount.at] = volume
    return tuple(found.values())


def read_mounts(roots: Roots = HOST) -> dict[str, Mount]:
    """By mount point; where several lie on one another, the uppermost."""
    lines = (text(roots.proc / "self" / "mountinfo") or "").splitlines()
    if not lines:
        parts = psutil.disk_partitions(all=True)
        return {it.mountpoint: Mount(it.mountpoint, it.fstype, it.device, "") for it in parts}
    found = {}
    for line in lines:
        # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
        fields, _, more = line.partition(" - ")
        words, after = fields.split(), more.split()
        if len(words) > 4 and len(after) > 1:
            at = _unescaped(words[4])
            found[at] = Mount(at, after[0], _unescaped(after[1]), words[2])
    return found


def mount_of(path: str, mounts: dict[str, Mount]) -> Mount | None:
    """Where a path ends up, followed through its links but never into a network mount."""
    here, ahead, links = "/", path.split("/"), 0
    while ahead:
        part = ahead.pop(0)
        if part in ("", "."):
            continue
        step = os.path.dirname(here) if part == ".." else os.path.join(here, part)
        over = _covering(step, mounts)
        if over is not None and over.network:
            return over
        try:
            target = os.readlink(step)
        except OSError:  # no link, or nothing there yet
            here = step
            continue
        links += 1
        if links > _MOST_LINKS:
            break
        ahead = [*target.split("/"), *ahead]
        here = "/" if target.startswith("/") else here
    return _covering(here, mounts)


def _covering(path: str, mounts: dict[str, Mount]) -> Mount | None:
    while path not in mounts and path != "/":
        path = os.path.dirname(path)
    return mounts.get(path)


def _volume(mount: Mount, roots: Roots) -> VolumeInfo | None:
    total = free = None
    if not mount.network:
        try:
            stats = os.statvfs(mount.at)
        except OSError:
            return None
        total, free = stats.f_frsize * stats.f_blocks, stats.f_frsize * stats.f_bavail
    disks = [] if mount.network else _disks(mount, roots)
    models = dict.fromkeys(name for disk in disks if (name := text(disk / "device" / "model")))
    spinning = [number(disk / "queue" / "rotational") for disk in disks]
    return VolumeInfo(
        mount=mount.at,
        total_bytes=total,
        free_bytes=free,
        filesystem=mount.filesystem or None,
        model=", ".join(models) or None,
        rotational=None if not spinning or None in spinning else any(spinning),
    )


def _disks(mount: Mount, roots: Roots) -> list[Path]:
    """The disks under a file system, in sysfs: partitions and mapped devices followed down."""
    by_number = roots.sys / "dev" / "block" / mount.number
    by_name = roots.sys / "class" / "block" / os.path.basename(os.path.realpath(mount.source))
    # btrfs and others have numbers of their own, which no block device has.
    start = by_number if mount.number and by_number.exists() else by_name
    if not mount.source.startswith("/dev/") or not start.exists():
        return []
    found, ahead = [], [start.resolve()]
    while ahead:
        disk = ahead.pop()
        below = [it.resolve() for it in listing(disk / "slaves")]
        if below:
            ahead += below
        else:
            found.append(disk.parent if (disk / "partition").exists() else disk)
    return list(dict.fromkeys(found))


def _unescaped(word: str) -> str:
    """The kernel writes blanks and backslashes in octal."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), word)
