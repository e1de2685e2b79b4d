"""Checks of the disks that the daemon writes to, and of what lies on them."""

import os
import re
from pathlib import Path

import msgspec
from msgspec import UNSET

from supervisor.cli.doctor.facts import Facts
from supervisor.cli.doctor.finding import Finding
from supervisor.cli.text import size

MIN_BYTES = 64 << 20
"""Less than this is full soon: records are small, and logs are not."""
FEW_BYTES = 1 << 30
FEW_INODES = 1_000
TAIL_BYTES = 8 << 20
"""How much of the journal's end is searched for gaps."""

# A server that is gone makes every call below its mount wait for ever, and fsync and locks of most
# of them do not hold what records rely on.
_REMOTE = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs"),
        *("ocfs2", "gfs2", "orangefs", "pvfs2", "virtiofs", "davfs", "wekafs", "glusterfs"),
        *("autofs", "fuse"),
    }
)


class _Gap(msgspec.Struct):
    kind: str
    from_: int = msgspec.field(name="from", default=0)
    to: int = 0


def state_dir(facts: Facts) -> Finding:
    return _place(facts, facts.paths.state_dir, "state-dir")


def log_dir(facts: Facts) -> Finding:
    return _place(facts, facts.paths.log_dir, "log-dir")


def _place(facts: Facts, path: str, key: str) -> Finding:
    """Local, writable, with room. A folder that is not there yet is judged by the one above."""
    elsewhere = f"Set `{key}` in the configuration to a folder on a local disk."
    if (kind := _file_system(facts, path)) and (kind in _REMOTE or kind.startswith("fuse.")):
        return Finding("fail", f"{path} is on {kind}", elsewhere)
    there = next(it for it in (Path(path), *Path(path).parents) if it.exists())
    if not there.is_dir():
        return Finding("fail", f"{there} is no folder", elsewhere)
    disk = os.statvfs(there)
    room = disk.f_bavail * disk.f_frsize
    fact = f"{path}{'' if there == Path(path) else ' (not made yet)'}, {kind}, {size(room)} free"
    if disk.f_flag & os.ST_RDONLY:
        return Finding("fail", f"{path} is on a disk mounted read-only", elsewhere)
    if _ours(facts) and not os.access(there, os.W_OK | os.X_OK):
        return Finding(
            "fail", f"{there} cannot be written to", f"Give it to this user. {elsewhere}"
        )
    make_room = f"Make room there. {elsewhere}"
    if room < MIN_BYTES:
        return Finding("fail", fact, make_room)
    if disk.f_files and disk.f_favail < FEW_INODES:
        return Finding("warn", f"{fact}, and {disk.f_favail} inodes", make_room)
    return Finding("warn" if room < FEW_BYTES else "ok", fact, make_room * (room < FEW_BYTES))


def _ours(facts: Facts) -> bool:
    """This user is the one who writes there: only then is our own right to it the daemon's."""
    return facts.info is None or facts.process.stat().st_uid == os.geteuid()


def _file_system(facts: Facts, path: str) -> str:
    """Of the mount with the longest way to it; by the kernel's table alone, which cannot hang."""
    best, kind = "", ""
    try:
        mounts = (facts.process / "mountinfo").read_text(errors="replace")
    except PermissionError:  # another user's daemon: it sees the same, but in a container
        mounts = (facts.root / "proc/self/mountinfo").read_text(errors="replace")
    for line in mounts.splitlines():
        fields = line.split()
        at = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = path == at or path.startswith(at.rstrip("/") + "/")
        if inside and len(at) >= len(best):
            best, kind = at, fields[fields.index("-") + 1]
    return kind


def journal(facts: Facts) -> Finding:
    """What was lost under this daemon, and which gaps the file tells of."""
    health = UNSET if facts.info is None else facts.info.journal
    full = "Make room on the disk of log-dir; events still reach whoever is connected."
    if health is not UNSET and health.error:
        return Finding("fail", f"lines are being lost ({health.lost}): {health.error}", full)
    path = Path(facts.paths.events)
    if not path.exists():
        missing = facts.info is not None
        advice = "It is made again with the next event; who removes it?" if missing else ""
        return Finding("warn" if missing else "skip", f"no {path}", advice)
    gaps = [gap for line in _tail(path).splitlines() if (gap := _gap(line))]
    if gaps:
        fact = f"gaps in {path}: {len(gaps)}, the last {gaps[-1].from_} to {gaps[-1].to}"
        return Finding("warn", fact, "Lines were lost there, for want of room in most cases.")
    return Finding("ok", f"no gap in {path}")


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        return file.read(TAIL_BYTES)


def _gap(line: bytes) -> _Gap | None:
    if b'"journal-gap"' not in line:
        return None
    try:
        found = msgspec.json.decode(line, type=_Gap)
    except msgspec.DecodeError:
        return None
    return found if found.kind == "journal-gap" else None


def records(facts: Facts) -> Finding:
    """Those in quarantine keep devices from everybody."""
    if facts.instances is not None:
        names = [it.name for it in facts.instances.unreadable or ()]
    else:
        folder = Path(facts.paths.state_dir, "quarantine")
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
    if not names:
        return Finding("ok", "none that cannot be read")
    by_name = ", ".join(f"`enginectl release {name}`" for name in names)
    advice = f"They keep devices. {by_name} frees them, once nothing of them runs."
    if facts.instances is None:
        advice = "They may keep devices. Start the daemon; `enginectl ps` then tells their names."
    return Finding("warn", f"cannot be read: {', '.join(names)}", advice)
