"""MLX's ``mlx_lm.server``, as of mlx-lm 0.32.2; checked with its own parser."""

from supervisor.contracts.engine import (
    ComputeEngineSpec,
    EngineSupport,
    HealthCheck,
    ReadyRequest,
)
from supervisor.contracts.host import HostProfile
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
    Word,
    names,
)
from supervisor.engines.support import Build, Builds, support

_BITS = {"q8_0": "8", "int8": "8", "q4_0": "4", "int4": "4"}


def _kv_bits(dtype: str, _: Ask) -> Answer:
    bits = _BITS.get(dtype.lower())
    if bits is None:
        return Lacks(f"mlx_lm.server quantises its cache to 8 or 4 bits and has no type {dtype}")
    return Noted(bits, "a quantised cache makes mlx_lm.server serve one request at a time")


_ONE_DEVICE = Lacks("mlx_lm.server is one process on one device; mlx.launch makes more of them")
_TOKENIZER = Lacks("mlx_lm.server picks the parser itself, by the tokenizer")

SPELLING = Spelling(
    program="mlx_lm.server",
    grammar=Grammar(equals=True, underscores=False, prefixes=True),
    model=Says((Word(Flag(("--model",))),)),
    host=Flag(("--host",)),
    port=Flag(("--port",)),
    name=Lacks("mlx_lm.server has no such name: clients ask for the model's path, or for none"),
    knobs={
        "tensor_parallel": _ONE_DEVICE,
        "pipeline_parallel": _ONE_DEVICE,
        "max_context_length": Lacks("mlx_lm.server takes the model's own and has no limit to set"),
        "memory_fraction": Lacks("MLX takes memory as it needs it"),
        "max_concurrent_requests": Says((Word(Flag(("--decode-concurrency",))),)),
        "kv_cache_dtype": Says((Word(Flag(("--kv-bits",)), _kv_bits),)),
        "dtype": Lacks("the model's files fix it"),
        "quantization": Lacks("the model's files fix it"),
        "trust_remote_code": Says((Word(Flag(("--trust-remote-code",), takes=0)),)),
        "tool_call_parser": _TOKENIZER,
        "reasoning_parser": _TOKENIZER,
    },
    harmless=Harmless(
        switches=names("--pipeline --use-default-chat-template"),
        values=names("""
            --chat-template-args --kv-group-size --log-level --max-tokens --min-p
            --num-draft-tokens --prefill-step-size --prompt-cache-bytes --prompt-cache-size
            --prompt-concurrency --quantized-kv-start --temp --top-k --top-p
        """),
        files=names("--adapter-path --draft-model"),
    ),
)

_COMPLETION = ReadyRequest(
    method="POST", path="/v1/completions", body='{"prompt": "1", "max_tokens": 1}'
)

HEALTH = HealthCheck(
    path="/health",
    ready_deadline_ms=300_000,
    interval_ms=500,
    ready=_COMPLETION,
    deep=_COMPLETION,
)
"""Its health path says 200 while the model loads; only a completion proves that it is there."""

BUILDS: Builds = {
    ("darwin", "metal"): Build("mlx-lm", ("arm64",)),
    ("linux", "cuda"): Build("mlx-lm[cuda13], or [cuda12] for an older driver"),
    ("linux", "cpu"): Build("mlx-lm[cpu]"),
}

ROWS = Rows(
    spelling=SPELLING,
    health=HEALTH,
    module=("-m", "mlx_lm", "server"),
    programs={"mlx_lm": ("server",)},
    spreads="one",
    container=Container(image=lambda _: None, port=8080),
)


def supports(host: HostProfile) -> EngineSupport:
    """Apple silicon, and Linux on CUDA or the CPU; never in a container, for it has no image."""
    return support("mlx_lm.server", BUILDS, host, images=False)


SPEC = ComputeEngineSpec(
    id="mlx",
    supports=supports,
    plan=ROWS.plan,
    explain=ROWS.explain,
    health=HEALTH,
    metrics={},
    default_binary="mlx_lm.server",
    default_port=8080,
    address=ROWS.address,
    demand=ROWS.demand,
    install_hint="install it with pip install mlx-lm (on Linux 'mlx-lm[cuda13]' or 'mlx-lm[cpu]') "
    "in a venv of its own, and name that venv's bin/mlx_lm.server: --binary PATH, or `mlx` under "
    "[engines] in the config",
)
