"""Exit codes, and what an error says on stderr: what happened, and what to do next."""

from supervisor.cli.text import printable
from supervisor.client import ClientError, DaemonUnreachable, PermissionDenied, RpcError
from supervisor.contracts import rpc
from supervisor.contracts.failure import ExitedEarly, UnhealthyTimeout

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
}


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


def explain(error: ClientError, name: str | None = None) -> tuple[int, str]:
    """An error's exit code, and its text for people. ``name`` is the instance it is about."""
    text = printable(str(error))
    hint = _hint(error, name)
    return exit_code(error), f"{text}\n{hint}" if hint else text


def _hint(error: ClientError, name: str | None) -> str:
    match error:
        case DaemonUnreachable():
            return (
                "Start it with `engined`, or name its socket with --socket or "
                "ENGINE_SUPERVISOR_SOCKET."
            )
        case PermissionDenied():
            return "Run this as the daemon's user, or see `access` in the daemon's config."
        case RpcError(code=rpc.NO_SUCH_INSTANCE):
            return "`enginectl ps -a` lists the instances there are, ended ones too."
        case RpcError(code=rpc.WAIT_TIMED_OUT) if name:
            return f"It goes on; `enginectl wait {printable(name)}` waits again."
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
    shown = "".join(f"  | {printable(line)}\n" for line in last)
    return f"{shown}`enginectl logs {printable(name)}` shows all of its output."
