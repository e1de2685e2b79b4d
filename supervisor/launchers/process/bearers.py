"""Processes that still show which instance they belong to: by environment, cgroup or log.

Only for instances whose records were lost: one that has its record is known by its handle.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from supervisor.contracts.event import MemberProcess
from supervisor.launchers.base import Bearer, CannotTellError, Trace
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.cgroups import Cgroups, marks_of
from supervisor.launchers.process.loglock import holders, log_is_held
from supervisor.launchers.process.procfs import NONCE_VARIABLE, Stat, processes

_NONCE = NONCE_VARIABLE.encode()
_NAME = b"ENGINE_SUPERVISOR_INSTANCE"
_SUPERVISOR = b"ENGINE_SUPERVISOR_SUPERVISOR"
_DEVICES = b"ENGINE_SUPERVISOR_DEVICES"


def find_bearers(trace: Trace, cgroups: Cgroups) -> tuple[Bearer, ...]:
    """Living processes with this nonce or, where none is known, with this name; and all those in
    its cgroups or at its logs, whatever they still show of their environment. Blocks.

    Raises ``CannotTellError`` where somebody is there who cannot be seen.
    """
    stats = [stat for stat in processes() if stat.alive and stat.pid != os.getpid()]
    seen = {stat.pid for stat in stats}
    inside = {pid: cgroup for cgroup in _places(trace, cgroups) for pid in _inside(cgroup, seen)}
    writing = {pid: log for log in _logs(trace) for pid in _writing(log, stats)}
    found: list[Bearer] = []
    for stat in stats:
        env = _environment(stat.pid)
        sign, ending = "by its environment", f"kill {stat.pid}"
        if (cgroup := inside.get(stat.pid)) is not None:
            sign, ending = "by its cgroup", f"write 1 to {cgroup}/cgroup.kill"
        elif (log := writing.get(stat.pid)) is not None:
            sign = f"by the log {log}, which it has open"
        elif not _ours(env, trace):
            continue
        devices = os.fsdecode(env.get(_DEVICES, b""))
        found.append(
            Bearer(
                process=MemberProcess(pid=stat.pid, name=stat.name),
                devices=tuple(device for device in devices.split(",") if device),
                sign=sign,
                ending=ending,
            )
        )
    return tuple(found)


def _ours(env: dict[bytes, bytes], trace: Trace) -> bool:
    """By name only where the nonce is lost, and not where it is another supervisor's."""
    if trace.nonce is not None:
        return env.get(_NONCE, b"").startswith(trace.nonce.encode())
    asked = trace.supervisor.encode() if trace.supervisor else None
    whose = env.get(_SUPERVISOR, asked)
    return env.get(_NAME) == os.fsencode(trace.name) and asked in (None, whose)


def _places(trace: Trace, cgroups: Cgroups) -> set[Cgroup]:
    """Its cgroups where ours are now, and the one that was its own by the record's word."""
    places = {*cgroups.of(trace.name, trace.nonce)}
    if trace.cgroup is not None:
        told = Cgroup(Path(trace.cgroup))
        marks = marks_of(told)
        if not marks or marks[0] != trace.name:
            raise CannotTellError(f"its record names a cgroup that is none of its own: {told}")
        places.add(told)
    return places


def _inside(cgroup: Cgroup, seen: set[int]) -> frozenset[int]:
    try:
        if not cgroup.populated():
            return frozenset()
    except OSError as error:
        raise CannotTellError(f"the cgroup {cgroup} cannot be read: {error.strerror}") from error
    pids = cgroup.pids() & seen
    if not pids and cgroup.populated():
        raise CannotTellError(f"somebody lives in the cgroup {cgroup} who does not show")
    return pids


def _logs(trace: Trace) -> Iterator[str]:
    """Those of that launch, or all that bear the instance's name; each has a nonce's beginning."""
    if trace.log_folder is None:
        return
    try:
        entries = os.listdir(trace.log_folder)
    except OSError:
        return  # no log, and so no sign
    for entry in entries:
        launch = trace.nonce is None or f"-{trace.nonce[:8]}-" in entry
        if entry.endswith(".log") and launch:
            yield os.path.join(trace.log_folder, entry)


def _writing(log: str, stats: list[Stat]) -> frozenset[int]:
    if not log_is_held(log):
        return frozenset()
    found = frozenset(stat.pid for stat in holders(log, stats))
    if not found and log_is_held(log):
        raise CannotTellError(f"somebody has the log {log} who does not show")
    return found


def _environment(pid: int) -> dict[bytes, bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
