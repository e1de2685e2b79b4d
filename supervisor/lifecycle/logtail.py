"""The end of an engine's log: what of it goes into a failure, and what it tells of the cause."""

from collections.abc import Callable
from dataclasses import dataclass

from supervisor.contracts.failure import Diagnosis
from supervisor.logs.reading import tail_text
from supervisor.logs.text import Mask
from supervisor.patience import Overdue, Patience

READ_SECONDS = 0.5
"""A log on a hung file system must not hold back the news of an exit."""
SHOWN_BYTES = 12 << 10
"""More than is shown: a secret that the cut falls into is masked before it is cut off."""
SEARCHED_BYTES = 256 << 10
"""How far back a cause is looked for: vLLM writes 15 KB of tracebacks behind it, and an engine that
stays up without ever being ready writes a line for each of our probes (both measured)."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """What an engine left in its log; empty where that cannot be had in time."""

    tail: str = ""
    diagnosis: Diagnosis | None = None


async def read_last_words(
    path: str | None,
    search: int,
    diagnose: Callable[[str], Diagnosis | None],
    threads: Patience,
    mask: Mask,
) -> LastWords:
    """The lines at the log's end, and the cause that its last ``search`` bytes tell; masked."""
    if path is None:
        return _look("", diagnose)
    try:
        return await threads.run(_read, path, search, diagnose, mask, within_s=READ_SECONDS)
    except Overdue:
        return _look("", diagnose)


def _read(
    path: str, search: int, diagnose: Callable[[str], Diagnosis | None], mask: Mask
) -> LastWords:
    return _look(tail_text(path, search, mask), diagnose)


def _look(log: str, diagnose: Callable[[str], Diagnosis | None]) -> LastWords:
    cut = len(log) - SHOWN_BYTES
    start = log.find("\n", cut - 1) + 1 if cut > 0 else 0
    return LastWords(log[start:] or log[max(cut, 0) :], diagnose(log))
