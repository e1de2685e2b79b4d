"""Exit codes, and what an error says on stderr: what happened, and what to do next."""

import msgspec
from msgspec import UNSET

from supervisor.cli.text import printable, tell, warn
from supervisor.client import ClientError, DaemonUnreachable, PermissionDenied, RpcError
from supervisor.contracts import rpc
from supervisor.contracts.failure import ExitedEarly, UnhealthyTimeout
from supervisor.contracts.rpc import ErrorObject

OK = 0
FAILED = 1
USAGE = 2
NOT_READY = 3
NO_INSTANCE = 4
NO_DAEMON = 69
NOT_ALLOWED = 77
TIMED_OUT = 124
INTERRUPTED = 130

TAIL_LINES = 10

_BY_CODE = {
    rpc.NO_SUCH_INSTANCE: NO_INSTANCE,
    rpc.INVALID_PARAMS: USAGE,
    rpc.METHOD_NOT_FOUND: USAGE,
    rpc.INVALID_LAUNCH: USAGE,
    rpc.NO_SUCH_RECIPE: USAGE,
    rpc.FORBIDDEN: NOT_ALLOWED,
    rpc.UNAVAILABLE: NO_DAEMON,
    rpc.WAIT_TIMED_OUT: TIMED_OUT,
    rpc.HAS_ENDED: NOT_READY,
}


class UsageError(Exception):
    """Words that make no sense, alone or together. Its text is for people."""

    def __init__(self, text: str, usage: str = "") -> None:
        super().__init__(text)
        self.usage = usage


def refuse(error: UsageError, *, json: bool) -> int:
    """Say what was wrong with the words, under ``--json`` as the daemon says it of params."""
    if json:
        tell_object(ErrorObject(code=rpc.INVALID_PARAMS, message=str(error)))
    else:
        tell(f"{error.usage}enginectl: {printable(str(error))}")
    return USAGE


def exit_code(error: ClientError) -> int:
    """The one that scripts go by."""
    match error:
        case RpcError():
            return _BY_CODE.get(error.code, FAILED)
        case DaemonUnreachable():
            return NO_DAEMON
        case PermissionDenied():
            return NOT_ALLOWED
        case _:
            return FAILED


def report(
    error: ClientError,
    name: str | None = None,
    *,
    json: bool,
    until: str = "ready",
    coded: bool = False,
) -> int:
    """Say an error on stderr, under ``--json`` as one line; returns its exit code.

    ``name`` is the instance it is about, ``until`` what was waited for, ``coded`` shows its number.
    """
    if json:
        tell_object(_object(error))
    else:
        text, hint = printable(str(error)), _hint(error, name, until)
        number = f"error {error.code}: " if coded and isinstance(error, RpcError) else ""
        warn(f"{number}{text}\n{hint}" if hint else f"{number}{text}")
    return exit_code(error)


def tell_object(error: ErrorObject) -> None:
    tell(msgspec.json.encode(error).decode())


def _object(error: ClientError) -> ErrorObject:
    """The daemon's own, or what it would have said."""
    match error:
        case RpcError():
            data = UNSET if error.data is None else msgspec.Raw(error.data)
            return ErrorObject(code=error.code, message=error.message, data=data)
        case DaemonUnreachable():
            code = rpc.UNAVAILABLE
        case PermissionDenied():
            code = rpc.FORBIDDEN
        case _:
            code = rpc.INTERNAL_ERROR
    return ErrorObject(code=code, message=str(error))


def _hint(error: ClientError, name: str | None, until: str) -> str:
    match error:
        case DaemonUnreachable():
            return (
                "Start it with `engined`, or name its socket with --socket or "
                "ENGINE_SUPERVISOR_SOCKET."
            )
        case PermissionDenied():
            return "Run this as the daemon's user, or see `access` in the daemon's config."
        case RpcError(code=rpc.NO_SUCH_INSTANCE) if "`enginectl " not in error.message:
            return "`enginectl ps -a` lists the instances there are, ended ones too."
        case RpcError(code=rpc.WAIT_TIMED_OUT) if name:
            what = printable(name) + ("" if until == "ready" else f" --for {until}")
            return f"It goes on; `enginectl wait {what}` waits again."
        case RpcError(code=rpc.CURSOR_EXPIRED):
            return "Leave --after out to see the newest events."
        case RpcError():
            return _output(error, name)
        case _:
            return ""


def _output(error: RpcError, name: str | None) -> str:
    failure = error.failure
    if not isinstance(failure, ExitedEarly | UnhealthyTimeout) or name is None:
        return ""
    last = failure.log_tail.splitlines()[-TAIL_LINES:]
    cause = failure.diagnosis.evidence if failure.diagnosis else ""
    if cause and not any(cause in line for line in last):
        last = [cause, "…", *last]
    shown = "".join(f"  | {printable(line)}\n" for line in last)
    return f"{shown}`enginectl logs {printable(name)}` shows all of its output."
