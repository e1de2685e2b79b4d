"""llama-server: where each knob lands in llama.cpp's own parameters."""

from tests.engines.matrix import Sheet
from tests.engines.sheets.common import EVERY, LINUX, NEUTRAL, over

# The second is a default of its own, kept beside what a launch says.
_TEMPLATE = {"enable_thinking": "false", "preserve_reasoning": "true"}

SHEET = Sheet(
    hosts=(
        *LINUX,
        *("linux-x64-cpu", "linux-arm64-cpu", "darwin-arm64-metal", "darwin-x64-cpu"),
    ),
    docker=(*LINUX, "linux-x64-cpu", "linux-arm64-cpu"),
    always={
        "model.path": "/models/tiny.gguf",
        "hostnames": ["127.0.0.1"],
        "port": 21000,
        "model_alias": ["tiny"],
        "endpoint_metrics": True,
    },
    inside={"hostnames": ["0.0.0.0"], "port": 8080},
    knobs={
        "tensorParallel": ({"tensorParallel": 2}, {}),
        "pipelineParallel": ({"pipelineParallel": 2}, {}),
        "maxContextLength": ({"maxContextLength": 8192}, {"n_ctx": 8192}),
        "maxContextLength-by-slots": (
            {"maxContextLength": 8192, "maxConcurrentRequests": 4},
            {"n_ctx": 32768, "n_parallel": 4},
        ),
        "memoryFraction": ({"memoryFraction": 0.85}, {}),
        "maxConcurrentRequests": ({"maxConcurrentRequests": 16}, {"n_parallel": 16}),
        "kvCacheDtype": (
            {"kvCacheDtype": "q8_0"},
            {"cache_type_k": "q8_0", "cache_type_v": "q8_0"},
        ),
        "kvCacheDtype-of-vllm": ({"kvCacheDtype": "fp8"}, {}),
        "dtype": ({"dtype": "bfloat16"}, {}),
        "quantization": ({"quantization": "awq"}, {}),
        "trustRemoteCode": ({"trustRemoteCode": True}, {}),
        "toolCallParser": ({"toolCallParser": "hermes"}, {}),
        "reasoningParser": ({"reasoningParser": "none"}, {"reasoning_format": "none"}),
        "reasoningParser-of-vllm": ({"reasoningParser": "qwen3"}, {}),
        "neutral": (NEUTRAL, {}),
    },
    every=(
        {**EVERY, "kvCacheDtype": "q4_0", "reasoningParser": "none"},
        {
            "n_ctx": 131072,
            "n_parallel": 16,
            "cache_type_k": "q4_0",
            "cache_type_v": "q4_0",
            "reasoning_format": "none",
        },
    ),
    overrides={
        "context": over("--ctx-size", "4096", maxContextLength=8192, lands={"n_ctx": 4096}),
        "context-equals": over("--ctx-size=4096", maxContextLength=8192, lands={"n_ctx": 4096}),
        "context-underscores": over(
            "--ctx_size", "4096", maxContextLength=8192, lands={"n_ctx": 4096}
        ),
        "context-short": over("-c", "4096", maxContextLength=8192, lands={"n_ctx": 4096}),
        "slots": over(
            *("--parallel", "2"),
            maxContextLength=8192,
            maxConcurrentRequests=4,
            lands={"n_ctx": 16384, "n_parallel": 2},
        ),
        "alias": over("--alias", "other", lands={"model_alias": ["other"]}),
        "model": over("--model", "/other.gguf", lands={"model.path": "/other.gguf"}),
        "cache-type": over(
            *("--cache-type-k", "q4_1"),
            kvCacheDtype="q8_0",
            lands={"cache_type_k": "q4_1", "cache_type_v": "q8_0"},
        ),
        "metrics-again": over("--metrics", lands={}),
        "address": over(
            "--host=0.0.0.0", "--port", "9001", lands={"hostnames": ["0.0.0.0"], "port": 9001}
        ),
        "reasoning": over(
            "--reasoning-format=none",
            reasoningParser="deepseek",
            lands={"reasoning_format": "none"},
        ),
        "json": over(
            *("--chat-template-kwargs", '{"enable_thinking": false}'),
            lands={"default_template_kwargs": _TEMPLATE},
        ),
    },
)
