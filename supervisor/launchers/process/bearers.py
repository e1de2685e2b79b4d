"""Processes that say in their environment which instance they belong to.

Only for instances whose records were lost: one that has its record is known by its handle.
"""

import os
from collections.abc import Iterable

from supervisor.contracts.event import MemberProcess
from supervisor.launchers.base import Bearer
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.procfs import NONCE_VARIABLE, processes

_NONCE = NONCE_VARIABLE.encode()
_NAME = b"ENGINE_SUPERVISOR_INSTANCE"
_DEVICES = b"ENGINE_SUPERVISOR_DEVICES"


def find_bearers(name: str, nonce: str | None, cgroups: Iterable[Cgroup]) -> tuple[Bearer, ...]:
    """Living processes with this nonce or, where none is known, with this name; and all those in
    its cgroups, whatever they still show of their environment. Blocks.
    """
    found: list[Bearer] = []
    inside = frozenset(pid for cgroup in cgroups for pid in cgroup.pids())
    for stat in processes():
        if not stat.alive or stat.pid == os.getpid():
            continue
        env = _environment(stat.pid)
        if nonce is None:
            ours = env.get(_NAME) == os.fsencode(name)
        else:
            ours = env.get(_NONCE) == nonce.encode()
        if ours or stat.pid in inside:
            devices = os.fsdecode(env.get(_DEVICES, b""))
            found.append(
                Bearer(
                    process=MemberProcess(pid=stat.pid, name=stat.name),
                    devices=tuple(device for device in devices.split(",") if device),
                )
            )
    return tuple(found)


def _environment(pid: int) -> dict[bytes, bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
