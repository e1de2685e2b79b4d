"""Which part of the cgroup v2 tree is ours: delegated by a unit, or made where no systemd rules.

In a delegated unit the daemon itself sits in ``supervisor`` and the instances below ``engines``:

    engined.service/               systemd starts the daemon here, and nobody else may stay here
    engined.service/supervisor/    the daemon, as soon as it runs
    engined.service/engines/NAME/  an instance

No controller is ever enabled in the unit's own cgroup: one that hands controllers down takes no
processes, and the next start, with engines left over, would fail before it reached us (219/CGROUP).
``DelegateSubgroup=`` does the daemon's part from systemd 254 on; Debian 12 has 252.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog

SUPERVISOR = "supervisor"
ENGINES = "engines"
DELEGATED = "user.delegate"
"""The extended attribute that systemd puts on a cgroup which it leaves to us."""
BOOTED = Path("/run/systemd/system")
"""Is there if systemd is PID 1: then the tree is its own, but for what it delegates."""

log = structlog.get_logger(__name__)


def step_aside() -> None:
    """Move this process out of the unit's own cgroup. Takes some 15 ms, once, before any thread."""
    unit = _delegated(_own())
    if unit is None:
        return
    try:
        (unit / SUPERVISOR).mkdir(exist_ok=True)
        (unit / SUPERVISOR / "cgroup.procs").write_text("0")
    except OSError as error:
        log.warning("the daemon stays in the unit's own cgroup", error=str(error))


def own_cgroup_root(supervisor_id: str) -> Path | None:
    """A directory in which one cgroup an instance can be made; it is there when this returns.

    None where cgroups are not ours to make: without version 2, in a unit without ``Delegate=``,
    in a user's session, in a container that may only look. Outside systemd it lies below our own
    cgroup, so that engines stay within whatever limits us, and bears the id of the state directory.
    """
    own = _own()
    if unit := _delegated(own):
        return _usable(unit / ENGINES)
    if own is None or BOOTED.is_dir():
        return None
    return _usable(own / f"engine-supervisor-{supervisor_id}")


def _own() -> Path | None:
    """The directory of the cgroup that this process is in."""
    with suppress(OSError):
        for line in _lines("/proc/self/cgroup"):
            if line.startswith("0::/"):
                inside = Path(line.removeprefix("0::"))
                return next((found for found in _places(inside) if found.is_dir()), None)
    return None


def _places(inside: Path) -> Iterator[Path]:
    """Where a cgroup shows among the mounts, of which each may show only a part of the tree."""
    for line in _lines("/proc/self/mountinfo"):
        fields = line.split()
        if fields[fields.index("-") + 1] == "cgroup2":
            top, point = _unescape(fields[3]), _unescape(fields[4])
            if inside.is_relative_to(top):
                yield point / inside.relative_to(top)


def _lines(path: str) -> list[str]:
    return os.fsdecode(Path(path).read_bytes()).rstrip("\n").split("\n")


def _unescape(field: str) -> Path:
    return Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field))


def _delegated(own: Path | None) -> Path | None:
    """The cgroup of the unit that was left to us: our own, or the one above once we moved."""
    if own is None:
        return None
    for place in (own, own.parent) if own.name == SUPERVISOR else (own,):
        with suppress(OSError):
            if os.getxattr(place, DELEGATED) == b"1":
                return place
    return None


def _usable(root: Path) -> Path | None:
    """Make it, if it can be made and can hold processes (below a threaded one it could not)."""
    try:
        root.mkdir(exist_ok=True)
        kind = (root / "cgroup.type").read_text().strip()
    except OSError:
        return None
    return root if kind == "domain" and os.access(root / "cgroup.procs", os.W_OK) else None
