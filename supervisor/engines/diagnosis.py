"""Why an engine failed, read from the end of its own log. One row a signature, as data.

A diagnosis explains a failure and never chooses its kind. The last line that a row knows wins, for
engines print the root cause late and generic lines after it, which no row knows. What no row knows
stays undiagnosed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.contracts.engine import EngineId
from supervisor.contracts.failure import Diagnosis

EVIDENCE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Signature:
    """A line that tells the cause. ``code`` is stable, the sentences are for people."""

    code: str
    pattern: re.Pattern[str]
    summary: str
    hint: str


def _row(code: str, pattern: str, summary: str, hint: str) -> Signature:
    return Signature(code, re.compile(pattern, re.IGNORECASE), summary, hint)


_LLAMACPP = (  # llama.cpp b11434: each line was printed by that server, measured
    _row(
        "bad-flag",
        r"error: invalid argument:|error while handling argument|invalid value for argument",
        "llama-server does not accept one of its arguments",
        "check the extra arguments against `llama-server --help`",
    ),
    _row(
        "port-in-use",
        r"couldn't bind HTTP server socket",
        "llama-server could not listen on its address",
        "another program holds the port, or the host is no address of this machine",
    ),
    _row(
        "model-missing",
        r"failed to open GGUF file .*No such file",
        "a file of the model is missing",
        "check the model's path; of a split model all parts must be there",
    ),
    _row(
        "model-corrupt",
        r"gguf_init_from_\w+: (failed to read|invalid)|is not within the file bounds"
        r"|this GGUF file is version",
        "the model file cannot be read as GGUF",
        "download or convert the model again",
    ),
    _row(
        "unsupported-architecture",
        r"unknown model architecture:|unknown pre-tokenizer type",
        "this llama-server does not know the model's architecture",
        "use a newer llama.cpp",
    ),
    _row(
        "out-of-memory",
        r"failed to allocate .*(buffer|compute)|unable to allocate|out of memory",
        "there was not enough memory for the model and its context",
        "lower maxContextLength or maxConcurrentRequests, or choose a smaller quantization",
    ),
    _row(
        "bad-device",
        r"invalid device|failed to initialize CUDA",
        "llama-server could not use its device",
        "check the driver, and that this llama-server was built for the device",
    ),
    _row(
        "flash-attention",
        r"quantized V cache requires flash_attn",
        "a quantized KV cache needs flash attention, which is off",
        "add `-fa on` to the extra arguments, or leave kvCacheDtype out",
    ),
    _row(
        "gated-download",
        r"failed to (fetch model metadata|download model)",
        "the model could not be downloaded",
        "download it beforehand and give its path",
    ),
    _row(
        "wrong-cpu",
        r"AMX is not ready to be used",
        "this llama-server was built for another processor",
        "use a build for this machine's instruction set",
    ),
)

SIGNATURES: Mapping[EngineId, tuple[Signature, ...]] = {"llamacpp": _LLAMACPP}
"""An engine that has no rows yet is never diagnosed."""


def diagnose(engine: EngineId, log_tail: str) -> Diagnosis | None:
    """The root cause that the log names last, if a row knows it."""
    rows = SIGNATURES.get(engine, ())
    for line in reversed(log_tail.splitlines()):
        for row in rows:
            if row.pattern.search(line):
                return Diagnosis(
                    code=row.code,
                    summary=row.summary,
                    hint=row.hint,
                    evidence=line.strip()[:EVIDENCE_CHARS],
                )
    return None
