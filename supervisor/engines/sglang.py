"""SGLang, as of 0.5.23; its own parser has checked the command line (``make engines-check``)."""

from supervisor.contracts.engine import (
    ComputeEngineSpec,
    EngineSupport,
    HealthCheck,
    MetricMap,
    ReadyRequest,
    StopStyle,
)
from supervisor.contracts.host import HostProfile
from supervisor.engines.container import Container
from supervisor.engines.plan import Rows
from supervisor.engines.spelling import (
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
from supervisor.engines.vocabulary import DTYPES, SGLANG_REASONING, SGLANG_TOOLS

METRICS = Flag(("--enable-metrics",), takes=0)
TRUST = Flag(("--trust-remote-code",), takes=0)

_CACHE_TYPES = ("fp8_e4m3", "fp8_e5m2", "mxfp8", "bf16", "bfloat16", "nvfp4", "fp4_mx_block16")

HARMLESS = Harmless(
    switches=names("""
        --allow-auto-truncate --disable-chunked-prefix-cache --disable-cuda-graph
        --disable-cuda-graph-padding --disable-custom-all-reduce --disable-overlap-schedule
        --disable-radix-cache --enable-cache-report --enable-deterministic-inference
        --enable-dp-attention --enable-dp-lm-head --enable-eplb --enable-hierarchical-cache
        --enable-lora --enable-mfu-metrics --enable-mixed-chunk --enable-multimodal
        --enable-p2p-check --enable-priority-scheduling --enable-strict-thinking
        --enable-two-batch-overlap --is-embedding --language-model-only --log-requests
        --show-time-cost --skip-server-warmup --sleep-on-idle
        --stream-response-default-include-usage
    """),
    values=names("""
        --admin-api-key --api-key --attention-backend --chunked-prefill-size --cpu-offload-gb
        --cuda-graph-max-bs-decode --decode-attention-backend --decode-log-interval
        --data-parallel-size --dp-size --expert-parallel-size --ep-size --grammar-backend
        --hicache-ratio --hicache-size --hicache-write-policy --load-balance-method --log-level
        --log-level-http --log-requests-level --max-lora-rank --max-loras-per-batch
        --max-prefill-tokens --max-queued-requests --max-total-tokens
        --num-continuous-decode-steps --page-size --prefill-attention-backend
        --radix-eviction-policy --random-seed --sampling-backend --sampling-defaults
        --schedule-conservativeness --schedule-policy --speculative-algorithm
        --speculative-eagle-topk --speculative-num-draft-tokens --speculative-num-steps
        --stream-interval --tokenizer-worker-num --triton-attention-num-kv-splits
        --watchdog-timeout
    """),
    files=names("""
        --chat-template --speculative-draft-model --speculative-draft-model-path --tokenizer-path
    """),
)

SPELLING = Spelling(
    program="SGLang",
    # Underscores in long flags, `-tp` and negations are errors to it.
    grammar=Grammar(equals=True, underscores=False, prefixes=True),
    model=Says((Word(Flag(("--model-path", "--model"))),)),
    host=Flag(("--host",)),
    port=Flag(("--port",)),
    name=Says((Word(Flag(("--served-model-name",))),)),
    knobs={
        "tensor_parallel": Says((Word(Flag(("--tp-size", "--tensor-parallel-size"))),)),
        "pipeline_parallel": Says((Word(Flag(("--pp-size", "--pipeline-parallel-size"))),)),
        "max_context_length": Says((Word(Flag(("--context-length",))),)),
        # Of weights and cache; vLLM's fraction counts activations in.
        "memory_fraction": Says((Word(Flag(("--mem-fraction-static",))),)),
        "max_concurrent_requests": Says((Word(Flag(("--max-running-requests",))),)),
        "kv_cache_dtype": Says(
            (
                Word(
                    Flag(("--kv-cache-dtype",)),
                    among(
                        _CACHE_TYPES,
                        {"fp8": "fp8_e4m3", "fp4_e2m1": "fp4_e2m1"},  # the latter up to 0.5.19
                        "SGLang's cache has the types",
                    ),
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
                        "SGLang's are",
                    ),
                ),
            )
        ),
        "quantization": Says((Word(Flag(("--quantization",))),)),
        "trust_remote_code": Says((Word(TRUST),)),
        "tool_call_parser": Says(
            (Word(Flag(("--tool-call-parser",)), also(SGLANG_TOOLS)),), auto=True
        ),
        "reasoning_parser": Says(
            (Word(Flag(("--reasoning-parser",)), also(SGLANG_REASONING)),), auto=True
        ),
    },
    switches=(METRICS,),
    harmless=HARMLESS,
    spread=Spread(
        replicas=Flag(("--dp-size", "--data-parallel-size")),
        # Groups inside tensor parallelism, then, and no replicas.
        alone=(Flag(("--enable-dp-attention",), takes=0),),
        nodes=Flag(("--nnodes",)),
    ),
    config=Flag(("--config",)),
)

HEALTH = HealthCheck(
    path="/health",
    ready_deadline_ms=1_200_000,
    interval_ms=500,
    # It generates a token before it answers: a second at best, 20 by its own limit.
    timeout_ms=25_000,
    deep=ReadyRequest(
        method="POST", path="/v1/completions", body='{"prompt": "1", "max_tokens": 1}'
    ),
)
"""Refuses connections while it loads, then says 503 until its own warm-up is done."""

METRIC_NAMES: MetricMap = {
    "requestsRunning": ("sglang:num_running_reqs",),
    "requestsWaiting": ("sglang:num_queue_reqs",),
    "kvCacheUtilization": ("sglang:token_usage", "sglang:full_token_usage"),
    "promptTokensTotal": ("sglang:prompt_tokens_total",),
    "generationTokensTotal": ("sglang:generation_tokens_total",),
}

BUILDS: Builds = {
    ("linux", "cuda"): Build("sglang, whose wheels since 0.5.20 are for CUDA 13"),
    ("linux", "rocm"): Build("sglang built from source with its all_hip extra", ("x64",)),
    ("linux", "xpu"): Build("sglang built from source for XPU", ("x64",)),
    ("linux", "cpu"): Build("sglang built from source for the CPU, on a Xeon with AMX", ("x64",)),
}


def image(host: HostProfile) -> str | None:
    """The official image for the host; none but for CUDA. Those for ROCm have no moving tag, and a
    suffix that depends on the card (``-rocm720-mi35x``): a launch has to name its own."""
    if host.accelerator != "cuda":
        return None
    gb10 = host.arch == "arm64" and host.unified_memory
    return "lmsysorg/sglang:spark" if gb10 else "lmsysorg/sglang:latest"


ROWS = Rows(
    spelling=SPELLING,
    health=HEALTH,
    command=("serve",),
    module=("-m", "sglang.launch_server"),
    env_on={"cpu": {"SGLANG_USE_CPU_ENGINE": "1"}},
    # Its wait for its own first request: 600 s, and 1800 s where that must be compiled for.
    ready_env={"SGLANG_WARMUP_TIMEOUT": 1800},
    spreads="parallel",
    container=Container(
        image=image,
        port=30000,
        # Its images start no server. This spelling is in all of them, `sglang serve` in newer ones.
        command=("python3", "-m", "sglang.launch_server"),
        caches={"engine-supervisor-huggingface": "/root/.cache/huggingface"},
        shm_bytes=32 << 30,
        ulimits={"memlock": -1, "stack": 64 << 20},
    ),
)


def supports(host: HostProfile) -> EngineSupport:
    """Linux, on what SGLang is built for."""
    return support("SGLang", BUILDS, host)


SPEC = ComputeEngineSpec(
    id="sglang",
    supports=supports,
    plan=ROWS.plan,
    explain=ROWS.explain,
    health=HEALTH,
    metrics=METRIC_NAMES,
    default_binary="sglang",
    default_port=30000,
    address=ROWS.address,
    demand=ROWS.demand,
    config=ROWS.config,
    image=image,
    # TERM is looked at every 5 s, then running requests are waited for without a limit.
    stop=StopStyle(grace_ms=30_000),
    install_hint="install it with pip install sglang in a venv of its own, and name that venv's "
    "bin/sglang: --binary PATH, or `sglang` under [engines] in the config",
)
