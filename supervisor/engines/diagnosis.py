"""Why an engine failed, read from its own log and the way it ended. The rows are in ``signatures``.

A diagnosis explains a failure and never chooses its kind. The last line that a row knows wins, for
engines print the root cause late and generic lines after it, which no row knows. What no row knows
stays undiagnosed.
"""

import re
from collections.abc import Mapping
from functools import cache

from msgspec.structs import replace

from supervisor.contracts.engine import EngineId
from supervisor.contracts.failure import Diagnosis
from supervisor.engines.signatures import CAUSES, CONSEQUENCES, DOOM, WITHDRAWN, Signature

EVIDENCE_CHARS = 300
LONGEST_LINE = 4096

MISLEADING: Mapping[tuple[EngineId, int | str], str] = {
    ("vllm", 0): "vLLM ends with 0 even when its engine core has died",
    ("sglang", "SIGKILL"): "SGLang kills itself when one of its processes failed: this SIGKILL "
    "need not be the kernel's OOM killer",
    ("exllamav3", 0): "TabbyAPI ends with 0 even when it could not start",
}
"""How an engine ends that says something else than what it means."""

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def diagnose(
    engine: EngineId, log: str, *, exit_code: int | None = None, signal: str | None = None
) -> Diagnosis | None:
    """The cause that the log names last, if a row knows one; else what the signal tells."""
    found = _last(CAUSES.get(engine, ()), log) or _last(CONSEQUENCES.get(engine, ()), log)
    if found is None and signal == "SIGILL":
        found = Diagnosis(
            code="wrong-cpu",
            summary="the engine ran into an instruction that this processor does not have",
            hint="use a build for this machine's instruction set",
            evidence="ended by SIGILL",
        )
    ended = signal or exit_code
    note = None if ended is None else MISLEADING.get((engine, ended))
    if found is None or note is None:
        return found
    return replace(found, summary=f"{found.summary} ({note})")


def is_doomed(engine: EngineId, line: str) -> bool:
    """Whether a line says that the engine will stay and never be ready where it was meant to be."""
    pattern = DOOM.get(engine)
    return pattern is not None and pattern.search(line) is not None


def withdrawal(log: str) -> Diagnosis | None:
    """Whether a container that runs says that its GPU was taken from it, whatever engine it has."""
    return _last((WITHDRAWN,), log)


def _last(rows: tuple[Signature, ...], log: str) -> Diagnosis | None:
    any_row = _any_row(rows)
    if not any_row.search(log):
        return None
    for line in reversed(log.splitlines()):
        line = line[:LONGEST_LINE]  # noqa: PLW2901 - the rest of it is of no use to anybody
        if not any_row.search(line):
            continue
        for row in rows:
            if row.pattern.search(line):
                return Diagnosis(
                    code=row.code,
                    summary=row.summary,
                    hint=row.hint,
                    evidence=_ESCAPES.sub("", line).strip()[:EVIDENCE_CHARS],
                )
    return None


@cache
def _any_row(rows: tuple[Signature, ...]) -> re.Pattern[str]:
    """One search for all rows: a log is long, and most of its lines are no cause."""
    return re.compile("|".join(row.pattern.pattern for row in rows) or r"(?!)")
