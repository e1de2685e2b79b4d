"""What engines print when they fail, one row a cause: data for ``diagnosis``.

Rows are of lines that were seen (captured from the engine, marked C) or read in its source and in
published logs. A row must not know a line that also stands in logs of engines that do well.
Patterns are exact in case and begin with letters, so that all rows of an engine together are one
fast search; and nothing in them repeats without a bound, for a line can hold anything.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.contracts.engine import EngineId


@dataclass(frozen=True, slots=True)
class Signature:
    """A line that tells the cause. ``code`` is stable, the sentences are for people."""

    code: str
    pattern: re.Pattern[str]
    summary: str
    hint: str


def _row(code: str, pattern: str, summary: str, hint: str) -> Signature:
    return Signature(code, re.compile(pattern), summary, hint)


_PYTHON = (  # what every engine in Python shares: argparse, sockets, the hub, torch
    _row(
        "bad-flag",  # C
        r"error: unrecognized arguments:|error: ambiguous option:"
        r"|error: argument .{0,200}(invalid choice|invalid \S{1,60} value):"
        r"|error: argument .{0,200}expected (one|at least one|\d{1,3}) argument"
        r"|error: .{0,200}ignored explicit argument|error: the following arguments are required",
        "the engine does not accept one of its arguments",
        "check the extra arguments and the options against the engine's --help",
    ),
    _row(
        "port-in-use",  # C
        r"Address already in use|\[Errno 98\]|error while attempting to bind on address",
        "the engine could not listen on its address",
        "another program holds the port, or the host is no address of this machine",
    ),
    _row(
        "model-missing",  # C
        r"Repo id must be in the form|Invalid repository ID or local directory specified"
        r"|does not appear to have a file named|Failed to load config\.json from"
        r"|FileNotFoundError: .{0,300}(config\.json|\.safetensors)|No safetensors found in",
        "the model is not there, or its folder lacks a file",
        "check the model's path; a folder with config.json, tokenizer and weights is wanted",
    ),
    _row(
        "model-corrupt",  # C
        r"SafetensorError|Error while deserializing header|\[load_safetensors\]"
        r"|PytorchStreamReader failed|JSONDecodeError",
        "a file of the model cannot be read",
        "download or convert the model again",
    ),
    _row(
        "gated-download",
        r"gated repo|GatedRepoError|40[13] Client Error",
        "the model is gated, and the download was refused",
        "accept its licence on the hub, and give HF_TOKEN in the launch's environment",
    ),
    _row(
        "gated-download",  # C
        r"RepositoryNotFoundError|LocalEntryNotFoundError|OfflineModeIsEnabled",
        "the model could not be downloaded",
        "download it beforehand and give its path",
    ),
    _row(
        "trust-remote-code",
        r"requires you to execute|contains custom code",
        "the model brings code of its own, which is not trusted",
        "read that code, then set trustRemoteCode",
    ),
    _row(
        "tokenizer",
        r"Can't load tokenizer|Couldn't instantiate the backend tokenizer",
        "the model's tokenizer cannot be loaded",
        "check that the model's folder has its tokenizer files",
    ),
    _row(
        "dependency-missing",  # C
        r"ModuleNotFoundError: No module named|ImportError: ",
        "the engine's installation lacks a package",
        "install the engine again, in an environment of its own",
    ),
)

WITHDRAWN = _row(
    "device-withdrawn",
    r"Failed to initialize NVML: Unknown Error",
    "the container lost its access to the GPU while it ran",
    "a `systemctl daemon-reload` on the host does that to containers that got their GPU from "
    "NVIDIA's hook; launch it again, and let the host offer CDI names",
)
"""The one cause that is looked for in the log of an engine that does well, too: it may serve on
from what it has, and the host's driver knows nothing of it."""

_CONTAINER = _row(
    "program-missing",
    r"\[FATAL tini \(\d{1,9}\)\] exec .{1,300} failed:"
    r"|ERROR \(catatonit:\d{1,9}\): failed to exec pid1:",
    "the container's init process could not run the engine's program",
    "name an image that has the program, executable and for this kind of processor",
)
"""The words of Docker's init, and Podman's: to the container engine that is an exit like others."""

_TORCH = (
    _row(
        "out-of-memory",
        r"torch\.(cuda\.)?OutOfMemoryError|(?:CUDA|HIP) (error: )?out of memory",
        "the device's memory was not enough",
        "lower maxContextLength, maxConcurrentRequests or memoryFraction, use more devices, or "
        "look for other programs on the device",
    ),
    WITHDRAWN,
    _row(
        "no-device",
        r"Found no NVIDIA driver|CUDA driver version is insufficient|No CUDA GPUs are available"
        r"|Failed to infer device type|No accelerator \(CUDA|nvidia-smi not found",
        "the engine found no device that it can use",
        "check the driver, and that this build of the engine is for the device",
    ),
    _row(
        "nccl",
        r"NCCL error|ncclUnhandledCudaError|ncclSystemError|DistBackendError",
        "the devices could not talk to each other",
        "set NCCL_DEBUG=INFO; shared memory (/dev/shm) or peer access is often the reason",
    ),
)

_VLLM = (
    _row(
        "kv-cache-too-small",
        r"No available memory for the cache blocks|KV cache is needed, which is larger than",
        "the memory left for the KV cache does not hold one request of the full length",
        "lower maxContextLength, or raise memoryFraction",
    ),
    _row(
        "memory-taken",
        r"is less than desired GPU memory utilization",
        "another program holds the device's memory",
        "see `enginectl devices`, end what is there, or lower memoryFraction",
    ),
    _row(
        "unsupported-architecture",
        r"are not supported for now|failed to be inspected|does not recognize this architecture",
        "this vLLM does not know the model's architecture",
        "use a newer vLLM",
    ),
    _row(
        "unknown-parser",
        r"invalid (tool call|reasoning) parser:",
        "vLLM has no parser of this name",
        "choose one of the names that the message lists",
    ),
    _row(
        "bad-flag",
        r"Invalid kv_cache_dtype:|--enable-auto-tool-choice requires",
        "vLLM does not accept a value that it was given",
        "check kvCacheDtype and the parsers against this version's documentation",
    ),
    _row(
        "start-timeout",
        r"Timed out waiting for engine core processes",
        "vLLM's own limit for a start passed",
        "raise VLLM_ENGINE_READY_TIMEOUT_S in the launch's environment",
    ),
)

_SGLANG = (
    _row(
        "kv-cache-too-small",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "the memory left for the KV cache is not enough",
        "raise memoryFraction, or lower maxContextLength",
    ),
    _row(
        "unsupported-architecture",
        r"are not supported for now|does not recognize this architecture",
        "this SGLang does not know the model's architecture",
        "use a newer SGLang",
    ),
)

_LLAMACPP = (  # llama.cpp b11434: each line was printed by that server, measured
    _row(
        "bad-flag",
        r"error: invalid argument:|error while handling argument|invalid value for argument"
        r"|Unknown reasoning format|built without SSL support",
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
        r"failed to open GGUF file .{0,999}No such file",
        "a file of the model is missing",
        "check the model's path; of a split model all parts must be there",
    ),
    _row(
        "model-corrupt",
        r"gguf_init_from_\w{1,60}: (failed to read|invalid)|is not within the file bounds"
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
        r"failed to allocate .{0,200}(buffer|compute)|unable to allocate|[Oo]ut of memory",
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

_MLX = (
    _row(
        "unsupported-architecture",
        r"Model type \S{1,60} not supported",
        "this mlx-lm does not know the model's architecture",
        "use a newer mlx-lm",
    ),
    _row(
        "out-of-memory",
        r"\[METAL\].{0,200}([Oo]ut of memory|Insufficient Memory)"
        r"|kIOGPUCommandBufferCallbackErrorOutOf",
        "there was not enough memory for the model",
        "choose a smaller quantization, or close what uses the machine's memory",
    ),
)

_EXLLAMAV3 = (  # TabbyAPI breaks its lines at 80 columns, so these look for short pieces
    _row(
        "port-in-use",  # C
        r"is currently in use\. Switching|are in use by different",
        "the port is taken, and TabbyAPI moves to the next one without asking",
        "another program holds the port; give this launch another one",
    ),
    _row(
        "out-of-memory",
        r"Insufficient VRAM",
        "the devices' memory was not enough for the model and its cache",
        "lower maxContextLength or maxConcurrentRequests, or use more devices",
    ),
    _row(
        "unsupported-architecture",
        r"Unknown architecture",
        "this exllamav3 does not know the model's architecture",
        "use a newer exllamav3, or a model in its EXL3 format",
    ),
    _row(
        "no-device",  # C: CUDA_HOME
        r"Unable to run ExllamaV3 because an unsupported|CUDA_HOME environment variable is not set",
        "exllamav3 needs an NVIDIA card of compute capability 8.0 or newer, and its CUDA",
        "check the driver and the device; a source install needs the CUDA toolkit as well",
    ),
    _row(
        "dependency-missing",  # C
        r"Inference dependencies for TabbyAPI are not",
        "TabbyAPI's installation lacks exllamav3",
        "install it into TabbyAPI's environment: `pip install .[cu12]` in its folder",
    ),
    _row(
        "bad-flag",
        r"pydantic\S{0,60}\.ValidationError|validation errors? for",
        "TabbyAPI does not accept a value that it was given",
        "check the extra arguments; every flag of TabbyAPI takes a value, booleans as well",
    ),
)

CAUSES: Mapping[EngineId, tuple[Signature, ...]] = {
    "vllm": (*_VLLM, *_TORCH, *_PYTHON, _CONTAINER),
    "sglang": (*_SGLANG, *_TORCH, *_PYTHON, _CONTAINER),
    "llamacpp": (*_LLAMACPP, _CONTAINER),
    "mlx": (*_MLX, *_PYTHON),
    "exllamav3": (*_EXLLAMAV3, *_TORCH, *_PYTHON, _CONTAINER),
}
"""Lines that tell the cause."""

CONSEQUENCES: Mapping[EngineId, tuple[Signature, ...]] = {
    "vllm": (
        _row(
            "engine-died",  # C
            r"EngineDeadError|EngineCore encountered a fatal error",
            "vLLM's engine core died",
            "its log says why further up, unless it was killed from outside (by the kernel's OOM "
            "killer, for instance)",
        ),
    ),
    "sglang": (
        _row(
            "engine-died",
            r"Received sigquit from a child process|SIGQUIT received"
            r"|Scheduler hit an exception|scheduler died during initialization"
            r"|couldn't get a response from detokenizer",
            "one of SGLang's processes failed",
            "its log says why further up",
        ),
        _row(
            "warmup-failed",
            r"Initialization failed\. warmup error|Capture cuda graph failed",
            "SGLang loaded the model and could not run it",
            "lower memoryFraction, or see the error in its log",
        ),
    ),
    "mlx": (
        _row(
            "engine-died",  # C
            r"generation thread died",
            "the thread that generates died; mlx_lm.server stays, and answers nothing",
            "its log says why",
        ),
    ),
}
"""Lines that only follow from a cause: they count where no cause is known."""

DOOM: Mapping[EngineId, re.Pattern[str]] = {
    "mlx": re.compile(r"generation thread died|\[Errno 98\]"),  # C: alive for ever after
    "exllamav3": re.compile(r"is currently in use\. Switching"),  # C: ready, where nobody asks
}
"""After such a line an engine stays, and will never be ready where it was meant to."""
