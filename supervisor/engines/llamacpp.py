"""llama.cpp's ``llama-server``, as of b11434; facts marked measured were seen on that binary."""

import re
from collections.abc import Mapping, Sequence

from msgspec import UNSET

from supervisor.contracts.engine import (
    AddressOverride,
    ComputeEngineSpec,
    EngineSupport,
    HealthCheck,
    MetricMap,
    ReadyRequest,
    StopStyle,
)
from supervisor.contracts.host import Accelerator, HostProfile
from supervisor.engines.container import Container
from supervisor.engines.plan import Rows
from supervisor.engines.spelling import (
    Answer,
    Ask,
    Flag,
    Grammar,
    Harmless,
    Lacks,
    Noted,
    Says,
    Spelling,
    Spread,
    Word,
    names,
)
from supervisor.engines.support import Build, Builds, support

MODEL = Flag(("-m", "--model"), env="LLAMA_ARG_MODEL")
HOST = Flag(("--host",), env="LLAMA_ARG_HOST")
PORT = Flag(("--port",), env="LLAMA_ARG_PORT")
ALIAS = Flag(("-a", "--alias"), env="LLAMA_ARG_ALIAS")
CONTEXT = Flag(("-c", "--ctx-size"), env="LLAMA_ARG_CTX_SIZE")
SLOTS = Flag(("-np", "--parallel"), env="LLAMA_ARG_N_PARALLEL")
KEYS_TYPE = Flag(("-ctk", "--cache-type-k"), env="LLAMA_ARG_CACHE_TYPE_K")
VALUES_TYPE = Flag(("-ctv", "--cache-type-v"), env="LLAMA_ARG_CACHE_TYPE_V")
REASONING = Flag(("--reasoning-format",), env="LLAMA_ARG_THINK")
METRICS = Flag(("--metrics",), takes=0, env="LLAMA_ARG_ENDPOINT_METRICS")
API_PREFIX = Flag(("--api-prefix",), env="LLAMA_ARG_API_PREFIX")

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_SAME_TYPE = {"float32": "f32", "float16": "f16", "fp16": "f16", "half": "f16", "bfloat16": "bf16"}
REASONING_FORMATS = ("none", "deepseek", "deepseek-legacy")


def _alias(name: str, _: Ask) -> Answer:
    """A free text, passed as it is; but the server splits it at commas."""
    if "," in name:
        return Noted(name, "llama-server takes the comma as separating several names")
    return name


def _context(per_request: int, ask: Ask) -> Answer:
    """``-c`` is the total that explicit slots divide, so it is a request's share times the slots.

    Without explicit slots llama-server makes 4 that share one pool, and each may use all of it
    (measured: ``-c 512`` gives four slots of 512). So a request may span what was asked for, and
    leaving the number of requests out still means the engine's own default. Forcing ``-np 1`` would
    serve one request at a time, which nobody asked for.
    """
    slots = _slots(ask)
    if slots is None:
        return Noted(
            str(per_request),
            f"the automatic slots share these {per_request} tokens; "
            "maxConcurrentRequests gives each request its own",
        )
    return str(per_request * slots)


def _slots(ask: Ask) -> int | None:
    """How many there will be, whoever says it; ``None`` for as many as the server likes."""
    option = ask.options.max_concurrent_requests
    text = ask.arguments.get(SLOTS)
    if text is None and option is not UNSET:
        return option
    text = text or ask.variables.get(SLOTS, "")
    return int(text) if _COUNT.fullmatch(text) else None


def _cache_type(dtype: str, _: Ask) -> Answer:
    known = _SAME_TYPE.get(dtype.lower(), dtype.lower())
    if known in CACHE_TYPES:
        return known
    return Lacks(f"llama.cpp has no cache of type {dtype}, only {', '.join(CACHE_TYPES)}")


def _reasoning(parser: str, _: Ask) -> Answer:
    if parser in REASONING_FORMATS:
        return parser
    return Lacks(
        f"llama-server picks the parser itself, by the chat template; {parser} is none of its "
        f"formats {', '.join(REASONING_FORMATS)}"
    )


HARMLESS = Harmless(
    switches=names("""
        --backend-sampling -bs --cache-prompt --no-cache-prompt --check-tensors --context-shift
        --no-context-shift --cont-batching -cb --no-cont-batching -nocb --cpu-moe -cmoe
        --embedding --embeddings --escape -e --no-escape --ignore-eos --jinja --no-jinja
        --kv-offload -kvo --no-kv-offload -nkvo --kv-unified -kvu --no-kv-unified -no-kvu
        --log-disable --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps
        --mmproj-offload --no-mmproj --no-mmproj-offload --no-host --offline --op-offload
        --no-op-offload --perf --no-perf --prefill-assistant --no-prefill-assistant
        --reasoning-preserve --no-reasoning-preserve --repack -nr --no-repack --rerank
        --reranking --slots --no-slots --special -sp --spec-default --spm-infill --swa-full
        --ui --webui --no-ui --no-webui --verbose -v --log-verbose --warmup --no-warmup
    """),
    values=names("""
        --adaptive-decay --adaptive-target --api-key --api-prefix --batch-size -b --cache-ram
        -cram --cache-reuse --chat-template-kwargs --checkpoint-min-step -cms
        --cpu-range -Cr --cpu-mask -C --ctx-checkpoints --swa-checkpoints -ctxcp
        --cache-type-k-draft -ctkd --cache-type-v-draft -ctvd --device -dev
        --dry-allowed-length --dry-base --dry-multiplier --dry-penalty-last-n
        --dynatemp-exp --dynatemp-range --embd-normalize --fit -fit --fit-ctx -fitc
        --fit-target -fitt --flash-attn -fa --frequency-penalty --gpu-layers --n-gpu-layers
        -ngl --gpu-layers-draft --n-gpu-layers-draft -ngld --spec-draft-ngl --grammar
        --hf-token -hft --image-max-tokens --image-min-tokens --json-schema -j --keep
        --kv-unified-per-slot --log-colors --log-verbosity --verbosity -lv --logit-bias -l
        --main-gpu -mg --min-p --mirostat --mirostat-ent --mirostat-lr --n-cpu-ffn -ncffn
        --n-cpu-moe -ncmoe --n-predict --predict -n --override-tensor -ot --pooling
        --presence-penalty --reasoning -rea --reasoning-budget --reasoning-budget-message
        --reasoning-effort --repeat-last-n --repeat-penalty --reverse-prompt -r
        --rope-freq-base --rope-freq-scale --rope-scale --rope-scaling --samplers
        --sampling-seq --sampler-seq --seed -s --sleep-idle-seconds --slot-prompt-similarity
        -sps --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --spec-draft-p-split
        --spec-type --split-mode -sm --sse-ping-interval --tags --temp --temperature
        --tensor-split -ts --threads -t --threads-batch -tb --threads-http --timeout -to
        --top-k --top-n-sigma --top-nsigma --top-p --typical --typical-p --ubatch-size -ub
        --xtc-probability --xtc-threshold --yarn-attn-factor --yarn-beta-fast
        --yarn-beta-slow --yarn-ext-factor --yarn-orig-ctx
    """),
    files=names("""
        --chat-template-file --grammar-file --json-schema-file -jf --lora --mmproj -mm
        --model-draft --spec-draft-model -md
    """),
)

SPELLING = Spelling(
    program="llama-server",
    grammar=Grammar(equals=False, underscores=True, prefixes=False),
    model=Says((Word(MODEL),)),
    host=HOST,
    port=PORT,
    name=Says((Word(ALIAS, _alias),)),
    knobs={
        # `-sm row` or `tensor` would split within layers, but neither takes a count, `tensor` is
        # experimental and `row` is slower on most hosts: not a guess to make for the user.
        "tensor_parallel": Lacks(
            "llama-server takes no count: it spreads whole layers over all leased devices; "
            "-sm row or -sm tensor among the extra arguments splits the layers themselves"
        ),
        "pipeline_parallel": Lacks(
            "llama-server takes no count: it spreads whole layers over all leased devices anyway"
        ),
        "max_context_length": Says((Word(CONTEXT, _context),)),
        "memory_fraction": Lacks(
            "llama-server fits itself into free memory; -fitt sets the margin in MiB"
        ),
        "max_concurrent_requests": Says((Word(SLOTS),)),
        "kv_cache_dtype": Says((Word(KEYS_TYPE, _cache_type), Word(VALUES_TYPE, _cache_type))),
        "dtype": Lacks("the GGUF file fixes it"),
        "quantization": Lacks("the GGUF file fixes it"),
        "trust_remote_code": Lacks("a GGUF file carries no code"),
        "tool_call_parser": Lacks("llama-server picks the parser itself, by the chat template"),
        "reasoning_parser": Says((Word(REASONING, _reasoning),)),
    },
    switches=(METRICS,),
    spread=Spread(
        listed=(
            Flag(("-ts", "--tensor-split"), env="LLAMA_ARG_TENSOR_SPLIT"),
            Flag(("-dev", "--device"), env="LLAMA_ARG_DEVICE"),
        ),
    ),
    path_prefix=API_PREFIX,
    harmless=HARMLESS,
)

HEALTH = HealthCheck(
    path="/health",
    ready_deadline_ms=300_000,
    interval_ms=250,
    deep=ReadyRequest(
        method="POST", path="/v1/completions", body='{"prompt": "1", "max_tokens": 1}'
    ),
)
"""It listens before it loads and says 503 meanwhile; loading is bound by the disk."""

METRIC_NAMES: MetricMap = {
    "requestsRunning": ("llamacpp:requests_processing",),
    "requestsWaiting": ("llamacpp:requests_deferred",),
    # Gone since May 2025 (llama.cpp PR 13660): unknown on today's servers, never 0.
    "kvCacheUtilization": ("llamacpp:kv_cache_usage_ratio",),
    "promptTokensTotal": ("llamacpp:prompt_tokens_total",),
    "generationTokensTotal": ("llamacpp:tokens_predicted_total",),
}

_IMAGES: Mapping[Accelerator, str] = {
    "cuda": "server-cuda",
    "rocm": "server-rocm",
    "xpu": "server-intel",
    "cpu": "server",
}
_AMD64_ONLY = ("rocm", "xpu")


def image(host: HostProfile) -> str | None:
    """The official image for the host; none where Metal or this architecture has none."""
    tag = _IMAGES.get(host.accelerator)
    if tag is None or (host.arch == "arm64" and host.accelerator in _AMD64_ONLY):
        return None
    if host.accelerator == "cuda" and host.arch == "arm64" and host.unified_memory:
        tag = "server-cuda13"  # GB10 needs CUDA 13; `server-cuda` is 12.8
    return f"ghcr.io/ggml-org/llama.cpp:{tag}"


ROWS = Rows(
    spelling=SPELLING,
    health=HEALTH,
    # Port 8080, because the image's own HEALTHCHECK asks there; siblings, for a model split into
    # several files is named by its first.
    container=Container(image=image, port=8080, with_siblings=True),
)


_NEEDS = "a llama-server built for {}, or for Vulkan"
BUILDS: Builds = {
    ("linux", "cuda"): Build(_NEEDS.format("CUDA")),
    ("linux", "rocm"): Build(_NEEDS.format("ROCm (HIP)")),
    ("linux", "xpu"): Build(_NEEDS.format("SYCL")),
    ("linux", "cpu"): Build("any llama-server"),
    ("darwin", "metal"): Build("any llama-server: builds for macOS have Metal"),
    ("darwin", "cpu"): Build("any llama-server"),
}


def supports(host: HostProfile) -> EngineSupport:
    """Every platform that we launch on: with a GPU, and on the CPU without one."""
    return support("llama-server", BUILDS, host)


def address(extra_args: Sequence[str], env: Mapping[str, str]) -> AddressOverride:
    """The effective host and port, unless the Vertex AI variables take the port over."""
    if env.get("AIP_MODE") == "PREDICTION":
        return AddressOverride(
            problem="AIP_MODE=PREDICTION makes llama-server listen on AIP_HTTP_PORT "
            "whatever --port says; leave it out"
        )
    return ROWS.address(extra_args, env)


SPEC = ComputeEngineSpec(
    id="llamacpp",
    supports=supports,
    plan=ROWS.plan,
    explain=ROWS.explain,
    health=HEALTH,
    metrics=METRIC_NAMES,
    default_binary="llama-server",
    default_port=8080,
    address=address,
    demand=ROWS.demand,
    image=image,
    # The first TERM lets streams run on while their clients stay (alive after 30 s, measured), the
    # second ends it at once: half of the grace is the clients'.
    stop=StopStyle(grace_ms=20_000, second_term_after_ms=10_000),
    install_hint="put the llama-server of a llama.cpp release (or of your system's package) on "
    "PATH, or name it: --binary PATH, or `llamacpp` under [engines] in the config",
)
