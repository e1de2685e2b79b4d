"""Whether and when an instance is tried again. Pure: the facts come in, the decision goes out."""

from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET

from supervisor.contracts.config import RestartConfig
from supervisor.contracts.failure import (
    AlreadyRunning,
    Cancelled,
    ExitedEarly,
    InstallFailed,
    LaunchFailure,
    NoCapacity,
    SpawnFailed,
    SpawnReason,
    UnhealthyTimeout,
    UnsupportedFailure,
)
from supervisor.contracts.instance import RestartPolicy

_HOPELESS: frozenset[SpawnReason] = frozenset(
    {"binary-missing", "not-executable", "model-missing", "workdir-missing", "image", "denied"}
)
"""Nothing about these changes by waiting; somebody has to act."""

_HOPELESS_DIAGNOSES = frozenset(
    {
        *("bad-flag", "unknown-parser", "model-missing", "model-corrupt", "tokenizer"),
        *("unsupported-architecture", "gated-download", "trust-remote-code", "wrong-cpu"),
        *("dependency-missing", "program-missing"),
    }
)


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after a pause."""

    delay_ms: int
    reason: Literal["back-off", "breaker"]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further attempt; ``reason`` is for people."""

    reason: str


def decide(
    policy: RestartPolicy,
    config: RestartConfig,
    failure: LaunchFailure,
    *,
    attempt: int,
    chance: float,
    was_ready: bool,
) -> Retry | GiveUp | None:
    """What follows the failure of attempt number ``attempt`` since the last stable period.

    ``None`` where no policy asks for more than one attempt. ``chance`` is a random number from 0
    to 1. An inference server that ends without being told to has failed, whatever its exit code
    (vLLM's says 0 when its engine process died), so ``on-failure`` counts every exit; ``always``
    differs in coming back after a reboot.
    """
    if policy == "never":
        return None
    if hopeless(failure, by_log=not was_ready):
        return GiveUp("the cause will not go away by trying again")
    if attempt >= config.max_attempts:
        return GiveUp(f"{attempt} attempts in a row failed")
    if attempt % config.breaker_failures == 0:
        return Retry(_stretched(config.breaker_ms, config.jitter, chance), "breaker")
    pause = min(config.initial_ms * 2 ** min(attempt - 1, 32), config.max_ms)
    return Retry(_stretched(pause, config.jitter, chance), "back-off")


def _stretched(pause_ms: int, jitter: float, chance: float) -> int:
    return round(pause_ms * (1 + jitter * chance))


def hopeless(failure: LaunchFailure, *, by_log: bool) -> bool:
    """Whether another attempt would only repeat this failure.

    ``by_log``: what the engine's log says counts. An engine that had been ready logs what its
    users send, and none of that may keep it from coming back.
    """
    match failure:
        case SpawnFailed():
            # Only a port that the launch itself asks for is never changed for another one.
            never_had = by_log and failure.reason == "port-taken"
            return never_had or failure.reason in _HOPELESS or (by_log and _diagnosed(failure))
        case ExitedEarly() | UnhealthyTimeout():
            return by_log and _diagnosed(failure)
        case UnsupportedFailure() | AlreadyRunning() | InstallFailed() | Cancelled():
            return True
        case NoCapacity():
            return False


def _diagnosed(failure: SpawnFailed | ExitedEarly | UnhealthyTimeout) -> bool:
    diagnosis = failure.diagnosis
    return diagnosis is not UNSET and diagnosis.code in _HOPELESS_DIAGNOSES
