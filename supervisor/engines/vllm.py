"""vLLM, as of 0.33.0; its own parser has checked the command line (``make engines-check``)."""

from collections.abc import Mapping

from supervisor.contracts.engine import (
    ComputeEngineSpec,
    EngineSupport,
    HealthCheck,
    MetricMap,
    ReadyRequest,
    StopStyle,
)
from supervisor.contracts.host import Accelerator, HostArch, HostProfile
from supervisor.engines.container import Container
from supervisor.engines.plan import Rows
from supervisor.engines.spelling import (
    MANY,
    Flag,
    Grammar,
    Harmless,
    Says,
    Spelling,
    Spread,
    Word,
    also,
    among,
    names,
)
from supervisor.engines.support import Build, Builds, support
from supervisor.engines.vocabulary import DTYPES, GGML_TYPES, VLLM_REASONING, VLLM_TOOLS

MODEL = Flag(("", "--model"))
"""Written bare, right behind ``serve``: ``--served-model-name`` before it is an error there."""
NAME = Flag(("--served-model-name",), takes=MANY)
AUTO_TOOLS = Flag(
    ("--enable-auto-tool-choice",),
    takes=0,
    # 0.33 has --disable-x for --enable-x, releases before it --no-enable-x; it takes both.
    negations=("--disable-auto-tool-choice", "--no-enable-auto-tool-choice"),
)
TRUST = Flag(("--trust-remote-code",), takes=0, negations=("--no-trust-remote-code",))

_CACHE_TYPE = also({**DTYPES, "half": "float16"}, GGML_TYPES, "a type of llama.cpp's alone")

HARMLESS = Harmless(
    switches=names("""
        --async-scheduling --no-async-scheduling --cudagraph-metrics --disable-cascade-attn
        --disable-custom-all-reduce --disable-fastapi-docs --disable-hybrid-kv-cache-manager
        --disable-log-stats --disable-sliding-window --disable-uvicorn-access-log
        --enable-chunked-prefill --no-enable-chunked-prefill --enable-dbo --enable-eplb
        --enable-expert-parallel -ep --enable-force-include-usage --enable-log-outputs
        --enable-log-requests --no-enable-log-requests --enable-lora --enable-mfu-metrics
        --enable-prefix-caching --no-enable-prefix-caching --enable-prompt-tokens-details
        --enable-request-id-headers --enable-server-load-tracking --enforce-eager
        --no-enforce-eager --exclude-tools-when-tool-choice-none --fully-sharded-loras
        --kv-cache-metrics --language-model-only --return-tokens-as-token-ids
        --skip-mm-profiling
    """),
    values=names("""
        --attention-backend --block-size --chat-template-content-format --convert
        --cpu-offload-gb --data-parallel-size -dp --data-parallel-size-local -dpl
        --decode-context-parallel-size -dcp --default-chat-template-kwargs --hf-token
        --kv-cache-memory-bytes --limit-mm-per-prompt --logprobs-mode
        --long-prefill-token-threshold --lora-dtype --max-cpu-loras --max-log-len
        --max-logprobs --max-lora-rank --max-loras --max-num-batched-tokens
        --mm-encoder-tp-mode --mm-processor-cache-gb --num-gpu-blocks-override
        --override-generation-config --performance-mode --response-role --runner
        --scheduling-policy --seed --shutdown-timeout --stream-interval --uvicorn-log-level
    """),
    lists=names("--api-key"),
    files=names("--chat-template --tokenizer"),
)

SPELLING = Spelling(
    program="vLLM",
    grammar=Grammar(equals=True, underscores=True, prefixes=True),
    model=Says((Word(MODEL),)),
    host=Flag(("--host",)),
    port=Flag(("--port",)),
    name=Says((Word(NAME),)),
    knobs={
        "tensor_parallel": Says((Word(Flag(("--tensor-parallel-size", "-tp"))),)),
        "pipeline_parallel": Says((Word(Flag(("--pipeline-parallel-size", "-pp"))),)),
        "max_context_length": Says((Word(Flag(("--max-model-len",))),)),
        "memory_fraction": Says(
            # The older name: 0.30 does not know the other one yet.
            (Word(Flag(("--gpu-memory-utilization", "--device-memory-utilization"))),)
        ),
        "max_concurrent_requests": Says((Word(Flag(("--max-num-seqs",))),)),
        # Not checked by the parser and growing with every release, as are quantization and the
        # parsers: the engine knows best.
        "kv_cache_dtype": Says(
            (
                Word(
                    Flag(("--kv-cache-dtype",)),
                    _CACHE_TYPE,
                ),
            )
        ),
        "dtype": Says(
            (
                Word(
                    Flag(("--dtype",)),
                    among(
                        ("half", "float16", "bfloat16", "float", "float32"),
                        DTYPES,
                        "vLLM's are",
                    ),
                ),
            )
        ),
        "quantization": Says((Word(Flag(("--quantization", "-q"))),)),
        "trust_remote_code": Says((Word(TRUST),)),
        # A parser alone is accepted and does nothing.
        "tool_call_parser": Says(
            (Word(Flag(("--tool-call-parser",)), also(VLLM_TOOLS)),), (Word(AUTO_TOOLS),)
        ),
        "reasoning_parser": Says((Word(Flag(("--reasoning-parser",)), also(VLLM_REASONING)),)),
    },
    spread=Spread(
        # Decode context parallelism takes turns on the devices of tensor parallelism.
        degrees=(Flag(("--prefill-context-parallel-size", "-pcp")),),
        replicas=Flag(("--data-parallel-size", "-dp")),
        replicas_here=Flag(("--data-parallel-size-local", "-dpl")),
        alone=(
            Flag(("--data-parallel-rank", "-dpn")),
            Flag(("--data-parallel-external-lb", "-dpe"), takes=0),
        ),
        nodes=Flag(("--nnodes", "-n")),
        elsewhere={
            Flag(("--distributed-executor-backend",)): "ray",
            Flag(("--data-parallel-backend", "-dpb")): "ray",
        },
    ),
    config=Flag(("--config",)),
    barred={
        Flag(("--uds",)): "makes it listen on a Unix socket, where no probe can reach it",
        Flag(("--headless",), takes=0): "makes it serve no HTTP at all",
    },
    harmless=HARMLESS,
)

HEALTH = HealthCheck(
    path="/health",
    ready_deadline_ms=1_200_000,
    interval_ms=500,
    deep=ReadyRequest(
        method="POST", path="/v1/completions", body='{"prompt": "1", "max_tokens": 1}'
    ),
)
"""Refuses connections until it can serve; a cold start may compile for many minutes."""

METRIC_NAMES: MetricMap = {
    "requestsRunning": ("vllm:num_requests_running",),
    "requestsWaiting": ("vllm:num_requests_waiting",),
    # Renamed in 0.9.2; the old name left in 0.12.
    "kvCacheUtilization": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "promptTokensTotal": ("vllm:prompt_tokens_total",),
    "generationTokensTotal": ("vllm:generation_tokens_total",),
}

_IMAGES: Mapping[Accelerator, str] = {
    "cuda": "vllm/vllm-openai:latest",
    "rocm": "vllm/vllm-openai-rocm:latest",
    "xpu": "vllm/vllm-openai-xpu:latest",
}
_CPU_IMAGES: Mapping[HostArch, str] = {
    "x64": "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:latest",
    "arm64": "public.ecr.aws/q9t5s3a7/vllm-arm64-cpu-release-repo:latest",
}


def image(host: HostProfile) -> str | None:
    """The official image for the host; none where Metal or this architecture has none."""
    if host.accelerator == "cpu":
        return _CPU_IMAGES[host.arch]
    if host.arch == "arm64" and host.accelerator != "cuda":
        return None
    return _IMAGES.get(host.accelerator)


ROWS = Rows(
    spelling=SPELLING,
    health=HEALTH,
    command=("serve",),
    module=("-m", "vllm.entrypoints.cli.main", "serve"),
    ready_env={"VLLM_ENGINE_READY_TIMEOUT_S": 600},
    spreads="parallel",
    container=Container(
        image=image,
        port=8000,
        model_by_flag=frozenset({"xpu", "cpu"}),
        caches={
            "engine-supervisor-huggingface": "/root/.cache/huggingface",
            "engine-supervisor-vllm": "/root/.cache/vllm",
        },
        shm_bytes=16 << 30,
        ulimits={"memlock": -1, "stack": 64 << 20},
    ),
)

BUILDS: Builds = {
    ("linux", "cuda"): Build("vllm, whose ordinary wheels are for CUDA 13"),
    ("linux", "rocm"): Build(
        "vLLM's ROCm wheels: from vLLM's own index, for Python 3.12", ("x64",)
    ),
    ("linux", "xpu"): Build("vllm built from source for XPU", ("x64",)),
    ("linux", "cpu"): Build("vLLM's CPU build, whose version ends in +cpu"),
}


def supports(host: HostProfile) -> EngineSupport:
    """Linux, on what vLLM ships builds for; its macOS build is source only and runs on the CPU."""
    return support("vLLM", BUILDS, host)


SPEC = ComputeEngineSpec(
    id="vllm",
    supports=supports,
    plan=ROWS.plan,
    explain=ROWS.explain,
    health=HEALTH,
    metrics=METRIC_NAMES,
    default_binary="vllm",
    default_port=8000,
    address=ROWS.address,
    demand=ROWS.demand,
    config=ROWS.config,
    image=image,
    stop=StopStyle(grace_ms=30_000),
    device_ids_since="0.24",
    install_hint="install it with pip install vllm in a venv of its own, and name that venv's "
    "bin/vllm: --binary PATH, or `vllm` under [engines] in the config",
)
