"""The failures that quote an engine: how it ended or what it was waited for, and its last words."""

from functools import partial

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from supervisor.contracts.failure import Diagnosis, ExitedEarly, UnhealthyTimeout
from supervisor.engines.diagnosis import diagnose
from supervisor.health.outcome import NotReady
from supervisor.instances.state import was_ready
from supervisor.launchers.base import Exit
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger
from supervisor.lifecycle.logtail import SEARCHED_BYTES, SHOWN_BYTES, read_last_words

_OUT_OF_MEMORY = Diagnosis(
    code="out-of-memory",
    summary="the kernel ended it, for its container or the host ran out of memory",
    hint="give it more memory, a smaller model, a shorter context or fewer slots",
    evidence="the container engine says OOMKilled",
)


async def exited_early(house: House, ledger: Ledger, exit_: Exit) -> ExitedEarly:
    """An exit as a failure; one after readiness too, for there is but this shape."""
    tail, diagnosis = await _last_words(house, ledger, exit_)
    return ExitedEarly(
        exit_code=exit_.exit_code,
        signal=exit_.signal,
        log_tail=tail,
        detail=UNSET if exit_.detail is None else exit_.detail,
        diagnosis=_OUT_OF_MEMORY if exit_.out_of_memory else diagnosis,
    )


async def timed_out(
    house: House, ledger: Ledger, waited_ms: int, last: NotReady | None
) -> UnhealthyTimeout:
    tail, diagnosis = await _last_words(house, ledger)
    return UnhealthyTimeout(
        waited_ms=waited_ms,
        log_tail=tail,
        last_probe=last.text if last else UNSET,
        diagnosis=diagnosis,
    )


async def _last_words(
    house: House, ledger: Ledger, exit_: Exit | None = None
) -> tuple[str, Diagnosis | UnsetType]:
    """The end of the log, fit for an event, and what it tells of the cause.

    The exit of an engine that had been ready is news that no long search may hold up.
    """
    record, redactor = ledger.record, ledger.redactor
    search = SHOWN_BYTES if exit_ is not None and was_ready(record) else SEARCHED_BYTES
    words = await read_last_words(
        ledger.supervision.log_path,
        search,
        partial(
            diagnose,
            record.engine,
            exit_code=exit_.exit_code if exit_ else None,
            signal=exit_.signal if exit_ else None,
        ),
        house.reading,
        redactor.text,
    )
    if words.diagnosis is None:
        return redactor.tail(words.tail), UNSET
    evidence = redactor.text(words.diagnosis.evidence)
    return redactor.tail(words.tail), replace(words.diagnosis, evidence=evidence)
