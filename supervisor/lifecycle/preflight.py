"""What a plan cannot know because it looks at nothing: files, programs, ports. All of it blocks,
so callers run it in a worker thread."""

import os
import shutil
from dataclasses import dataclass

import psutil

from supervisor.contracts.engine import ComputeEngineSpec
from supervisor.contracts.failure import InstallFailed, LaunchFailure, SpawnFailed
from supervisor.failures import bounded
from supervisor.instances.ports import port_state
from supervisor.lifecycle.order import Order
from supervisor.runtimes.scripts import interpreter_words


class Problem(Exception):
    """A launch cannot go on. Carries the failure that the client will see."""

    def __init__(self, failure: LaunchFailure) -> None:
        super().__init__(failure)
        self.failure = bounded(failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The executable a launch will run."""

    path: str
    named: bool
    """The launch or the config names it, so that its absence is their mistake."""


def wanted_program(order: Order, spec: ComputeEngineSpec, configured: str | None) -> Program:
    """The launch's own binary, else the config's, else the engine's usual name."""
    if order.command:
        return Program(path=order.command[0], named=True)
    if order.binary:
        return Program(path=order.binary, named=True)
    if configured:
        return Program(path=configured, named=True)
    return Program(path=spec.default_binary, named=False)


def find_program(program: Program, spec: ComputeEngineSpec, search: str) -> str:
    """The absolute path of the program, looked up in ``search`` (a PATH) where it is a bare name.

    Raises ``Problem``: ``install-failed`` where nobody named the program, for then the engine
    itself is missing; ``spawn-failed`` where somebody did.
    """
    path = program.path
    if "/" not in path:
        if found := shutil.which(path, path=search):
            return _with_interpreter(found, search)
        if not program.named:
            hint = spec.install_hint or f"install {spec.id} so that {path} is on PATH"
            raise Problem(
                InstallFailed(engine=spec.id, detail=f"no {path!r} on the daemon's PATH; {hint}")
            )
        raise Problem(
            SpawnFailed(detail=f"no program {path!r} on the daemon's PATH", reason="binary-missing")
        )
    try:
        os.stat(path)
    except PermissionError:
        detail = f"the daemon may not look at the program {path}: Permission denied"
        raise Problem(SpawnFailed(detail=detail, reason="denied")) from None
    except (OSError, ValueError):
        detail = f"no program at {path}"
        raise Problem(SpawnFailed(detail=detail, reason="binary-missing")) from None
    if os.path.isdir(path) or not os.access(path, os.X_OK):
        raise Problem(SpawnFailed(detail=f"{path} is not executable", reason="not-executable"))
    return _with_interpreter(path, search)


def _with_interpreter(path: str, search: str) -> str:
    """A script needs the program that its first line names; the kernel's own error would not say
    which one is missing."""
    words = interpreter_words(path)
    if not words or not words[0].startswith("/"):
        return path  # no script, or one that means something in its own folder only
    interpreter = words[0]
    if not os.access(interpreter, os.X_OK):
        there = "cannot be executed" if os.path.exists(interpreter) else "is not there"
        more = " (its first line ends as on Windows)" if interpreter.endswith("\r") else ""
        detail = f"{path} is a script for {interpreter.rstrip()}, which {there}{more}"
        raise Problem(SpawnFailed(detail=detail, reason="not-executable"))
    if os.path.basename(interpreter) == "env" and len(words) > 1:
        name = words[1].strip()
        is_name = not name.startswith("-") and not set(name) & set("= \t")
        if is_name and not shutil.which(name, path=search):
            detail = f"{path} is a script for {name}, which is not on its PATH"
            raise Problem(SpawnFailed(detail=detail, reason="not-executable"))
    return path


def check_port(host: str, port: int, *, explicit: bool) -> None:
    """Nobody listens there. An explicit port is never changed, so a taken one ends the launch."""
    status = port_state(host, port)
    if status == "taken":
        kind = "asked for by the launch" if explicit else "chosen for the launch"
        raise Problem(
            SpawnFailed(
                detail=f"port {port}, {kind} on {host}, is taken by {_listener(port)}; "
                "leave the port out to have a free one chosen",
                reason="port-taken",
            )
        )
    if status == "denied":
        raise Problem(
            SpawnFailed(detail=f"port {port} needs rights that the daemon lacks", reason="denied")
        )
    if status == "no-address":
        raise Problem(SpawnFailed(detail=f"{host} is no address of this host"))


def _listener(port: int) -> str:
    """Who listens on a port, as far as we may know. Nobody is ever signalled for it."""
    try:
        for found in psutil.net_connections("tcp"):
            there = found.laddr and found.laddr.port == port
            if there and found.status == psutil.CONN_LISTEN and found.pid:
                return f"{psutil.Process(found.pid).name()} (pid {found.pid})"
    except psutil.Error:
        return "another listener"
    return "another listener"
