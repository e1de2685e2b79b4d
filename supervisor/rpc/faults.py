"""Why a call failed, as an exception on the way to its reply, and lifecycle's errors as numbers."""

import msgspec
from msgspec import UNSET

from supervisor.bus import CursorExpired
from supervisor.contracts import rpc
from supervisor.contracts.rpc import ErrorObject, ExpiredCursor
from supervisor.failures import to_rpc
from supervisor.lifecycle import errors


class Fault(Exception):
    """An error reply. Raised by a handler, or by whatever comes before it."""

    def __init__(self, code: int, message: str, data: msgspec.Struct | None = None) -> None:
        super().__init__(code, message)
        self.error = ErrorObject(
            code=code,
            message=message,
            data=UNSET if data is None else msgspec.Raw(msgspec.json.encode(data)),
        )


_CODES: dict[type[errors.LifecycleError], int] = {
    errors.Forbidden: rpc.FORBIDDEN,
    errors.InvalidLaunch: rpc.INVALID_LAUNCH,
    errors.NoSuchRecipe: rpc.NO_SUCH_RECIPE,
    errors.NoSuchInstance: rpc.NO_SUCH_INSTANCE,
    errors.NotOurs: rpc.NOT_OURS,
    errors.PinnedInstance: rpc.PINNED,
    errors.CannotTell: rpc.CANNOT_TELL,
    errors.StopIncomplete: rpc.STOP_INCOMPLETE,
    errors.WaitTimedOut: rpc.WAIT_TIMED_OUT,
    errors.StillAlive: rpc.STILL_ALIVE,
    errors.NotDone: rpc.NOT_DONE,
    errors.HasEnded: rpc.HAS_ENDED,
    errors.Unavailable: rpc.UNAVAILABLE,
}


def error_of(problem: Exception) -> ErrorObject | None:
    """The error object of a failure that the interface foresees; None for a defect of ours."""
    match problem:
        case Fault():
            return problem.error
        case errors.LaunchRefused():
            return to_rpc(problem.failure)
        case errors.LifecycleError():
            for kind in type(problem).__mro__:
                if (code := _CODES.get(kind)) is not None:
                    return ErrorObject(code=code, message=str(problem))
            return None
        case CursorExpired():
            return expired(problem)
        case _:
            return None


def expired(problem: CursorExpired) -> ErrorObject:
    """A place in the event stream that is gone; the reply names one that is there."""
    return Fault(
        rpc.CURSOR_EXPIRED,
        "the events after this place are no longer kept; "
        "read the present state (instance.list) and go on from the cursor in its reply",
        ExpiredCursor(cursor=problem.valid),
    ).error
