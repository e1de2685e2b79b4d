"""exllamav3, served by TabbyAPI as of e632af4 (August 2026); checked with its own parser.

TabbyAPI is no package: it is run inside its checkout, by the Python of a venv that its installer
puts there. Every one of its flags takes a value, booleans too.
"""

import posixpath
import re

from msgspec import UNSET

from supervisor.contracts.engine import (
    ComputeEngineSpec,
    EngineSupport,
    HealthCheck,
    ReadyRequest,
)
from supervisor.contracts.host import HostProfile
from supervisor.engines.container import Container
from supervisor.engines.plan import PYTHON, Rows
from supervisor.engines.spelling import (
    MANY,
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
    among,
    names,
)
from supervisor.engines.support import Build, Builds, support

CONTEXT = Flag(("--max-seq-len",), env="TABBY_MODEL_MAX_SEQ_LEN")
CACHE = Flag(("--cache-size",), env="TABBY_MODEL_CACHE_SIZE")
BATCH = Flag(("--max-batch-size",), env="TABBY_MODEL_MAX_BATCH_SIZE")

PAGE = 256
"""The cache is handed out in pages of so many tokens; another size is an error."""
_BIT_PAIR = re.compile(r"[2-8],[2-8]")
_COUNT = re.compile(r"[1-9][0-9]{0,7}")
_CACHE_MODES = among(
    ("FP16", "Q8", "Q6", "Q4"),
    {
        **dict.fromkeys(("f16", "float16", "half"), "FP16"),
        **{"q8_0": "Q8", "int8": "Q8", "q4_0": "Q4", "int4": "Q4"},
    },
    "TabbyAPI's cache has the modes k,v (bits from 2 to 8),",
)
_TOOL_FORMATS = among(
    (
        *("qwen3_coder", "minimax_m2", "glm4_5", "deepseek_v4", "harmony", "hy3", "muse_glimmer"),
        *("mistral", "mistral_old", "gemma4"),
    ),
    {
        **dict.fromkeys(("glm45", "glm47", "glm4_6", "glm4_7"), "glm4_5"),
        **dict.fromkeys(("openai", "gpt-oss"), "harmony"),
        **{"hy_v3": "hy3", "minimax-m2": "minimax_m2", "deepseekv4": "deepseek_v4"},
    },
    "TabbyAPI's tool formats are",
)


def _folder(path: str, _: Ask) -> Answer:
    return posixpath.dirname(path.rstrip("/")) or "/"


def _name(path: str, _: Ask) -> Answer:
    return posixpath.basename(path.rstrip("/"))


def _cache(per_request: int, ask: Ask) -> Answer:
    """One request's tokens times the requests, for they share the cache; in whole pages."""
    option = ask.options.max_concurrent_requests
    said = ask.arguments.get(BATCH)
    if said is None and option is UNSET:
        said = ask.variables.get(BATCH)
    requests = option or 1
    if said is not None:
        requests = int(said) if _COUNT.fullmatch(said) else 1
    context = ask.arguments.get(CONTEXT)
    if context is not None:  # and a cache smaller than it would be refused
        if not _COUNT.fullmatch(context):
            return Lacks("the extra arguments say the length, and the cache follows it")
        per_request = int(context)
    return str(-(-per_request * requests // PAGE) * PAGE)


def _cache_mode(dtype: str, ask: Ask) -> Answer:
    return dtype if _BIT_PAIR.fullmatch(dtype) else _CACHE_MODES(dtype, ask)


def _tensor_parallel(count: int, _: Ask) -> Answer:
    return Noted("true", f"TabbyAPI has a switch, no count of {count}: it takes all leased devices")


def _reasoning(parser: str, _: Ask) -> Answer:
    return Noted(
        "true",
        f"TabbyAPI knows no parser {parser}: it splits at <think>, or at "
        "--reasoning-start-token and --reasoning-end-token",
    )


_DEVICES = "TabbyAPI spreads whole layers over all leased devices anyway"

SPELLING = Spelling(
    program="TabbyAPI",
    grammar=Grammar(equals=True, underscores=False, prefixes=True),
    model=Says(
        (
            Word(Flag(("--model-dir",), env="TABBY_MODEL_MODEL_DIR"), _folder),
            Word(Flag(("--model-name",), env="TABBY_MODEL_MODEL_NAME"), _name),
        )
    ),
    host=Flag(("--host",), env="TABBY_NETWORK_HOST"),
    port=Flag(("--port",), env="TABBY_NETWORK_PORT"),
    name=Lacks("TabbyAPI's model goes by its folder's name, and it answers whatever is asked for"),
    knobs={
        "tensor_parallel": Says((Word(Flag(("--tensor-parallel",)), _tensor_parallel),)),
        "pipeline_parallel": Lacks(_DEVICES),
        "max_context_length": Says((Word(CONTEXT), Word(CACHE, _cache))),
        "memory_fraction": Lacks("TabbyAPI fits itself in; --autosplit-reserve sets MB to spare"),
        "max_concurrent_requests": Says((Word(BATCH),)),
        "kv_cache_dtype": Says((Word(Flag(("--cache-mode",)), _cache_mode),)),
        "dtype": Lacks("the EXL3 folder fixes it"),
        "quantization": Lacks("the EXL3 folder fixes it"),
        "trust_remote_code": Lacks("TabbyAPI runs no code of a model's"),
        "tool_call_parser": Says((Word(Flag(("--tool-format",)), _TOOL_FORMATS),)),
        "reasoning_parser": Says((Word(Flag(("--reasoning",)), _reasoning),)),
    },
    spread=Spread(listed=(Flag(("--gpu-split",), takes=MANY),)),
    barred={
        Flag(("--config",)): "makes it ignore every other flag, the port's and the model's "
        "included; put the values into the config.yml of its folder",
    },
    harmless=Harmless(
        values=names("""
            --chunk-size --force-enable-thinking --gpu-split-auto
            --log-generation-params --log-prompt --log-requests --output-chunking
            --reasoning-budget-message --reasoning-budget-tokens --reasoning-end-token
            --reasoning-start-token --rope-alpha --rope-scale --sse-ping-interval
            --start-in-reasoning --tensor-parallel-backend --tool-calls-in-reasoning --vision
        """),
        lists=names("--autosplit-reserve --gpu-split"),
    ),
)

HEALTH = HealthCheck(
    path="/health",
    ready_deadline_ms=600_000,
    interval_ms=500,
    deep=ReadyRequest(
        method="POST", path="/v1/completions", body='{"prompt": "1", "max_tokens": 1}'
    ),
)
"""Loads before it listens. One failed generation makes it say 503 for ever."""

BUILDS: Builds = {
    ("linux", "cuda"): Build(
        "TabbyAPI with its cu12 or cu13 extra, on a GPU of compute capability 8.0 or newer",
        ("x64",),
    ),
}


def image(host: HostProfile) -> str | None:
    """The official image, which is for NVIDIA on x64 alone."""
    there = host.accelerator == "cuda" and host.arch == "x64"
    return "ghcr.io/theroyallab/tabbyapi:latest" if there else None


def _checkout(binary: str) -> str | None:
    """The folder of ``main.py``: its config, templates and samplers are named relative to it."""
    folder, program = posixpath.split(binary)
    if not PYTHON.fullmatch(program):
        return None
    return posixpath.dirname(posixpath.dirname(folder)) or None


ROWS = Rows(
    spelling=SPELLING,
    health=HEALTH,
    module=("main.py",),
    workdir=_checkout,
    container=Container(
        image=image,
        port=5000,
        models="/app/models",
        command=("main.py",),
        shm_bytes=8 << 30,
        ulimits={"memlock": -1, "nofile": 1 << 20},
    ),
)


def supports(host: HostProfile) -> EngineSupport:
    """NVIDIA only: exllamav3 refuses ROCm when it loads."""
    return support("TabbyAPI", BUILDS, host)


SPEC = ComputeEngineSpec(
    id="exllamav3",
    supports=supports,
    plan=ROWS.plan,
    explain=ROWS.explain,
    health=HEALTH,
    metrics={},
    default_binary="tabbyapi",
    default_port=5000,
    address=ROWS.address,
    demand=ROWS.demand,
    image=image,
    install_hint="clone TabbyAPI, make a venv inside the clone and install .[cu12] or .[cu13] into "
    "it; then name its Python: --binary CLONE/venv/bin/python, or `exllamav3` under [engines] in "
    "the config",
)
