"""The one place that renders a ``LaunchFailure``: for RPC, for HTTP, for the event log, for people.

Every rendering is an exhaustive match, so a failure that is added to the contract does not pass
the type check until somebody has decided how it looks everywhere.
"""

from typing import assert_never

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from supervisor.contracts.event import LaunchFailed
from supervisor.contracts.failure import (
    AlreadyRunning,
    Cancelled,
    Diagnosis,
    ExitedEarly,
    InstallFailed,
    LaunchFailure,
    NoCapacity,
    SpawnFailed,
    UnhealthyTimeout,
    UnsupportedFailure,
)
from supervisor.contracts.rpc import ErrorObject

TAIL_BYTES = 8 * 1024
"""What a log tail may take in an event or a reply, as encoded JSON, its quotes included."""

# JSON writes these in two characters; every other control character takes six.
_SHORT_ESCAPES = frozenset('"\\\b\t\n\f\r')


def to_rpc(failure: LaunchFailure) -> ErrorObject:
    """The error of a refused or failed launch. Its ``data`` is the failure itself."""
    return ErrorObject(
        code=_code(failure),
        message=sentence(failure),
        data=msgspec.Raw(msgspec.json.encode(failure)),
    )


def to_http(failure: LaunchFailure) -> int:
    """The status that says the same over HTTP."""
    match failure:
        case UnsupportedFailure():
            return 422
        case AlreadyRunning() | NoCapacity():
            return 409
        case InstallFailed() | SpawnFailed() | ExitedEarly() | UnhealthyTimeout():
            return 503
        case Cancelled():
            return 400
        case _:
            assert_never(failure)


def to_event(
    failure: LaunchFailure,
    *,
    instance: str,
    nonce: str,
    attempt: int,
    log_path: str | None,
) -> LaunchFailed:
    """The event of an attempt that ended like this; its ``failure`` equals the reply's data."""
    return LaunchFailed(
        instance=instance, nonce=nonce, failure=failure, attempt=attempt, log_path=log_path
    )


def sentence(failure: LaunchFailure) -> str:
    """What happened and what to do about it, on one line."""
    match failure:
        case UnsupportedFailure():
            return f"this host cannot run {failure.engine}: {failure.reason}"
        case AlreadyRunning(detail=str() as detail):
            return detail
        case AlreadyRunning():
            return (
                f"an instance named {failure.name} is already there; stop it first "
                f"(enginectl stop {failure.name}), or choose another name"
            )
        case NoCapacity():
            return _capacity(failure)
        case InstallFailed():
            return f"{failure.engine} is not installed: {failure.detail}"
        case SpawnFailed():
            return _joined(f"the engine could not be started: {failure.detail}", failure.diagnosis)
        case ExitedEarly():
            said = f" ({failure.detail})" if failure.detail else ""
            return _joined(
                f"the engine {_end(failure)}{said} before it was ready", failure.diagnosis
            )
        case UnhealthyTimeout():
            seen = f" (last probe: {failure.last_probe})" if failure.last_probe else ""
            ms = failure.waited_ms
            waited = f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f}".removesuffix(".0") + " s"
            return _joined(f"the engine was not ready after {waited}{seen}", failure.diagnosis)
        case Cancelled():
            return "the launch was cancelled before the engine was ready"
        case _:
            assert_never(failure)


def bounded_tail(text: str, limit: int = TAIL_BYTES) -> str:
    """The end of a log that fits ``limit`` bytes once encoded, from a line's start where it can.

    To be applied where a failure is made: event and reply then carry the same one.
    """
    recent = text[-limit:].encode("utf-8", "replace").decode()
    room = limit - 2
    start = len(recent)
    while start and (room := room - _encoded_size(recent[start - 1])) >= 0:
        start -= 1
    if start == 0 and len(text) <= limit:
        return recent
    tail = recent[start:]
    if start and recent[start - 1] == "\n":
        return tail
    _, newline, whole_lines = tail.partition("\n")
    return whole_lines if newline and whole_lines else tail


DETAIL_CHARS = 2_000


def bounded(failure: LaunchFailure) -> LaunchFailure:
    """The failure with a detail that fits an event line, however long a path in it is.

    To be applied where a failure is made: event and reply then carry the same one.
    """
    match failure:
        case SpawnFailed() | InstallFailed():
            return replace(failure, detail=_shortened(failure.detail))
        case NoCapacity(detail=str() as detail):
            return replace(failure, detail=_shortened(detail))
        case ExitedEarly(detail=str() as detail):
            return replace(failure, detail=_shortened(detail))
        case AlreadyRunning(detail=str() as detail):
            return replace(failure, detail=_shortened(detail))
        case UnsupportedFailure():
            return replace(failure, reason=_shortened(failure.reason))
        case _:
            return failure


def _shortened(text: str) -> str:
    return text if len(text) <= DETAIL_CHARS else f"{text[:DETAIL_CHARS]}…"


def bounded_pair(
    newest: LaunchFailure, first: LaunchFailure
) -> tuple[LaunchFailure, LaunchFailure, bool]:
    """Two failures that share one event line, and whether their log tails had to be cut for it."""
    short, short_first = (_with_tail(failure, TAIL_BYTES // 2) for failure in (newest, first))
    return short, short_first, (short, short_first) != (newest, first)


def _with_tail(failure: LaunchFailure, limit: int) -> LaunchFailure:
    if isinstance(failure, ExitedEarly | UnhealthyTimeout):
        return replace(failure, log_tail=bounded_tail(failure.log_tail, limit))
    return failure


def _code(failure: LaunchFailure) -> int:
    match failure:
        case UnsupportedFailure():
            return 1001
        case AlreadyRunning():
            return 1002
        case NoCapacity():
            return 1003
        case InstallFailed():
            return 1004
        case SpawnFailed():
            return 1005
        case ExitedEarly():
            return 1006
        case UnhealthyTimeout():
            return 1007
        case Cancelled():
            return 1008
        case _:
            assert_never(failure)


def _capacity(failure: NoCapacity) -> str:
    if failure.need_bytes is not UNSET and failure.free_bytes is not UNSET:
        short = (
            f"{_amount(failure.need_bytes)} of a device's memory are needed and "
            f"{_amount(failure.free_bytes)} are free"
        )
    else:
        noun = "device is" if failure.need == 1 else "devices are"
        short = f"{failure.need} {noun} needed and {failure.free or 'none'} can be leased"
    detail = f" ({failure.detail})" if failure.detail else ""
    return f"{short}{detail}; `enginectl devices` shows who holds what"


def _amount(count: int) -> str:
    value, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def _end(failure: ExitedEarly) -> str:
    if failure.signal is not None:
        return f"was ended by {failure.signal}"
    if failure.exit_code is not None:
        return f"exited with code {failure.exit_code}"
    return "ended"


def _joined(what: str, diagnosis: Diagnosis | UnsetType) -> str:
    if diagnosis is UNSET:
        return what
    return f"{what}: {diagnosis.summary}; {diagnosis.hint}"


def _encoded_size(character: str) -> int:
    if character in _SHORT_ESCAPES:
        return 2
    return 6 if character < " " else len(character.encode())
