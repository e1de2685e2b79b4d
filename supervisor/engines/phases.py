"""What an engine is doing while it starts, read from its log as it grows. One row a line of a log.

A phase is news for people and a sign of life for a deadline; nothing else hangs on it. So a row
that is missing costs little, and a line that no row knows says nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from supervisor.contracts.engine import EngineId

Phase = Literal["downloading", "loading-weights", "compiling", "capturing-graphs", "warming-up"]


@dataclass(frozen=True, slots=True)
class PhaseSeen:
    """A phase, and how far it has come where the line says so."""

    phase: Phase
    detail: str | None = None
    """Such as ``50 %, 2/4``."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line that holds ``text`` belongs to ``phase``. ``like`` narrows it down."""

    phase: Phase
    text: str
    like: re.Pattern[str] | None = None

    def knows(self, line: str) -> bool:
        return self.text in line and (self.like is None or self.like.search(line) is not None)


_PERCENT = re.compile(r"(?<![\d.])(\d{1,3})%")
_COUNT = re.compile(r"(?<![\d/.])(\d{1,6})/(\d{1,6})(?![\d/.])")
_REQUEST = re.compile(r"\b(?:GET|HEAD|POST) /\S* HTTP/\d")
_SHARDS = re.compile(r"Loading \w+ checkpoint shards:")
_MODEL_FILE_BAR = re.compile(r"\.(?:safetensors|bin|pt|gguf|json|model): +\d+%\|")

# huggingface_hub's bars, whoever it is that downloads. Its versions differ in the last three.
_HUB = (
    Row("downloading", "Fetching ", re.compile(r"Fetching \d+ files:")),
    Row("downloading", "%|", _MODEL_FILE_BAR),
    Row("downloading", "Downloading (incomplete total"),
    Row("downloading", "Downloading shards:"),
)

_VLLM = (  # captured: 0.32.0 on a CPU, marked C; others from published logs and from its source
    Row("loading-weights", "Starting to load model "),  # C
    Row("loading-weights", "checkpoint shards:", _SHARDS),  # C
    Row("loading-weights", "Multi-thread loading shards:"),
    Row("loading-weights", "Time spent downloading weights"),  # the end of a download
    Row("loading-weights", "Loading weights took "),  # C
    Row("compiling", "for vLLM's torch.compile"),
    Row("compiling", "Dynamo bytecode transform time"),
    Row("compiling", "Compiling a graph for "),
    Row("compiling", "Directly load the compiled graph"),
    Row("compiling", "Directly load AOT compilation"),  # inferred
    Row("compiling", "Warming up model for the compilation"),  # the CPU's own
    Row("warming-up", "torch.compile takes "),  # the end of compiling: what follows profiles
    Row("warming-up", "Compile and warming up model for size"),
    Row("warming-up", "Running FlashInfer autotune"),
    Row("warming-up", "Autotuning process starts"),
    Row("warming-up", "GPU KV cache size:"),
    Row("warming-up", "CPU KV cache size:"),  # C
    Row("capturing-graphs", "Capturing CUDA graph"),
    Row("capturing-graphs", "Capturing the model for CUDA graphs"),  # before 0.9
    Row("warming-up", "Graph capturing finished in"),  # the end of capturing
    Row("warming-up", "init engine (profile, create kv cache, warmup model) took"),  # C
)

_SGLANG = (  # from published logs and from its source; none could be captured
    Row("loading-weights", "Load weight begin."),
    Row("loading-weights", "checkpoint shards:", _SHARDS),
    Row("loading-weights", "Multi-thread loading shards:"),
    Row("loading-weights", "Load weight end."),
    Row("compiling", "Compiling num tokens (num_tokens="),
    Row("capturing-graphs", "Capture cuda graph begin."),
    Row("capturing-graphs", "Capturing batches (", re.compile(r"Capturing batches \(.*%\|")),
    Row("capturing-graphs", "Capturing num tokens (num_tokens="),
    Row("warming-up", "Capture cuda graph end."),
    Row("warming-up", "Running FlashInfer autotune"),
    Row("warming-up", "Start of pd disaggregation warmup"),  # inferred
    Row("warming-up", "INFO:     Application startup complete."),  # its own first request follows
)

_LLAMACPP = (  # captured: b11434, marked C; others from published logs
    Row("downloading", "trying to download model from"),
    Row("downloading", "common_download"),  # inferred
    Row("loading-weights", "load_model: loading model "),  # C
    Row("loading-weights", "load_tensors: loading model tensors"),
    Row("loading-weights", "fitting params to device memory"),
    Row("warming-up", "init: llama threadpool init"),  # C
    Row("warming-up", "warming up the model with an empty run"),
    Row("warming-up", "load_model: initializing, n_slots"),  # C
)

_MLX = (  # captured: 0.32.2, which says nothing of its loading but its hub's bars
    Row("loading-weights", "Starting httpd at "),  # C; it loads in a thread from then on
)

_EXLLAMAV3 = (  # from TabbyAPI's source; only a start without a model could be captured
    Row("downloading", "Downloading ", re.compile(r"Downloading .*\d+%")),  # inferred
    Row("loading-weights", "Loading model: "),
    Row("loading-weights", "Loading with "),
    Row("loading-weights", "Loading model modules"),
    Row("warming-up", "Model successfully loaded."),
)

PHASES: Mapping[EngineId, tuple[Row, ...]] = {
    "vllm": (*_VLLM, *_HUB),
    "sglang": (*_SGLANG, *_HUB),
    "llamacpp": _LLAMACPP,
    "mlx": (*_MLX, *_HUB),
    "exllamav3": _EXLLAMAV3,
}


def phase_of(engine: EngineId, line: str) -> PhaseSeen | None:
    """The phase that a line tells of. The first row that knows the line decides."""
    for row in PHASES[engine]:
        if row.knows(line):
            return PhaseSeen(row.phase, _detail(line))
    return None


def is_request(line: str) -> bool:
    """A line that tells of an HTTP request. While an engine starts those are our own probes."""
    return _REQUEST.search(line) is not None


def _detail(line: str) -> str | None:
    """How far a progress bar has come; other lines hold numbers that mean something else."""
    percent = _PERCENT.search(line)
    if percent is None or int(percent[1]) > 100:
        return None
    count = _COUNT.search(line, percent.end())
    return f"{percent[1]} %" + (f", {count[1]}/{count[2]}" if count else "")
