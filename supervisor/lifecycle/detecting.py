"""``engine.detect``: a look at every process of this host, for engines that somebody runs.

Looks only, in a worker thread. Each process is a case of its own: one that vanishes, is a zombie
or may not be read costs itself and no other (ORP-7).
"""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import psutil
from msgspec import UNSET, UnsetType

from supervisor.contracts.engine import EngineId
from supervisor.contracts.instance import DockerHandle, InstanceRecord, ProcessHandle
from supervisor.contracts.rpc import DetectedEngine, DetectReply
from supervisor.engines.devices import DEVICE_VARIABLES
from supervisor.engines.invocation import (
    detect_engine,
    extract_model_path,
    extract_port,
    extract_served_model_name,
    started,
)
from supervisor.engines.secrets import mask_argv
from supervisor.lifecycle.errors import NotDone
from supervisor.patience import Overdue, Patience

T = TypeVar("T")
D = TypeVar("D")

SCAN_S = 20.0
NONCE = "ENGINE_SUPERVISOR_NONCE"

_looking = Patience("looking at this host's processes", 2)
_CONTAINER = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Seen:
    """One process, as far as it can be read."""

    pid: int
    ppid: int
    argv: tuple[str, ...]
    exe: str = ""
    cwd: str = ""
    env: Mapping[str, str] | None = None
    listening: tuple[int, ...] | None = None
    container: str | UnsetType = UNSET
    user: str | UnsetType = UNSET


@dataclass(slots=True)
class Census:
    """All processes that could be read, and how many could not."""

    seen: dict[int, Seen] = field(default_factory=dict)
    unreadable: int = 0


async def detect(records: Mapping[str, InstanceRecord]) -> DetectReply:
    """The engines of this host. Raises ``NotDone`` where the look does not come back."""
    try:
        return await _looking.run(_detect, records, within_s=SCAN_S)
    except Overdue as error:
        raise NotDone(str(error)) from None


def _detect(records: Mapping[str, InstanceRecord]) -> DetectReply:
    census = take_census()
    engines = detected(census.seen, records)
    return DetectReply(engines=engines, unreadable=census.unreadable)


def take_census() -> Census:
    """Read every process. Blocks."""
    census = Census()
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                argv = process.cmdline()
                if argv:  # a thread of the kernel has none
                    census.seen[pid] = _look(process, tuple(argv))
        except (psutil.NoSuchProcess, ProcessLookupError):  # a zombie is one of them
            continue
        except (psutil.Error, OSError):
            census.unreadable += 1
    return census


def _look(process: psutil.Process, argv: tuple[str, ...]) -> Seen:
    """What more can be read of it; engines are few, so only of what may be one, or be ours."""
    ppid = process.ppid()
    exe, cwd = _or(process.exe, ""), _or(process.cwd, "")
    env: dict[str, str] | None = _or(process.environ, None)
    if _serving(argv, exe, cwd) is None and NONCE not in (env or ()):
        return Seen(process.pid, ppid, argv)
    return Seen(
        process.pid,
        ppid,
        argv,
        exe,
        cwd,
        env,
        _or(partial(_listening, process), None),
        _container(process.pid),
        _or(process.username, UNSET),
    )


def _or(read: Callable[[], T], otherwise: D) -> T | D:
    try:
        return read()
    except (psutil.AccessDenied, PermissionError, KeyError):
        return otherwise


def _listening(process: psutil.Process) -> tuple[int, ...]:
    sockets = process.net_connections("tcp")
    return tuple(sorted({it.laddr.port for it in sockets if it.status == psutil.CONN_LISTEN}))


def _container(pid: int) -> str | UnsetType:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            found = _CONTAINER.search(file.read())
    except OSError:
        return UNSET
    return found[0] if found else UNSET


def detected(
    seen: Mapping[int, Seen], records: Mapping[str, InstanceRecord]
) -> tuple[DetectedEngine, ...]:
    """The servers among processes, by pid: one entry an engine, not one a worker."""
    found: dict[int, DetectedEngine] = {}
    for process in seen.values():
        serving = _serving(process.argv, process.exe, process.cwd)
        if serving is not None and not _is_copy(process, seen):
            found[process.pid] = _entry(process, *serving, _owner(process, records))
    known = {entry.instance for entry in found.values()}
    for record in records.values():
        # A title that was rewritten tells nothing; the record knows what it started.
        pid = record.ref.pid if isinstance(record.ref, ProcessHandle) else -1
        main = seen.get(pid)
        if main is not None and record.name not in known and _owner(main, records) is record:
            found[pid] = _entry(main, record.engine, main.argv, record)
    return tuple(found[pid] for pid in sorted(found))


def _serving(argv: tuple[str, ...], exe: str, cwd: str) -> tuple[EngineId, tuple[str, ...]] | None:
    """The engine, and the command line as it is understood: by its words, by its folder where a
    script has none of its own, and by its program where the first word is a title.
    """
    ran = started(argv)
    if ran is None:
        return None
    spellings = [argv]
    if ran.kind == "program" and ran.name != argv[0] and cwd:
        spellings.append((posixpath.join(cwd, ran.name), *ran.args))
    elif ran.kind == "program" and exe:
        spellings.append((exe.removesuffix(" (deleted)"), *argv[1:]))
    return next(((engine, it) for it in spellings if (engine := detect_engine(it))), None)


def _is_copy(process: Seen, seen: Mapping[int, Seen]) -> bool:
    """A child that was forked and has not become anything else yet."""
    parent = seen.get(process.ppid)
    return parent is not None and parent.pid != process.pid and parent.argv == process.argv


def _owner(process: Seen, records: Mapping[str, InstanceRecord]) -> InstanceRecord | None:
    """Whose it is: by its nonce where one can be read, else by the handle."""
    nonce = (process.env or {}).get(NONCE)
    for record in records.values():
        match record.ref:
            case _ if nonce is not None:
                mine = nonce == record.nonce
            case ProcessHandle(pid=pid):
                mine = pid == process.pid
            case DockerHandle(container=container):
                mine = bool(process.container) and process.container == container
            case _:
                mine = False
        if mine:
            return record
    return None


def _entry(
    process: Seen, engine: EngineId, argv: Sequence[str], owner: InstanceRecord | None
) -> DetectedEngine:
    env, model = process.env, extract_model_path(engine, argv)
    masks = (
        None if env is None else {key: env[key] for key in sorted(DEVICE_VARIABLES & env.keys())}
    )
    return DetectedEngine(
        pid=process.pid,
        engine=engine,
        model=mask_argv((model,))[0] if model else None,  # it may be a URL with a password
        served_model_name=extract_served_model_name(engine, argv),
        port=extract_port(engine, argv, env or {}),
        listening=process.listening,
        masks=masks,
        instance=owner.name if owner else None,
        devices=owner.devices if owner else UNSET,
        container=process.container,
        user=process.user,
    )
