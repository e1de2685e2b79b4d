"""SGLang 0.5.23: where each knob lands in the namespace of its parser."""

from tests.engines.matrix import Sheet
from tests.engines.sheets.common import EVERY, LINUX, NEUTRAL, over

SHEET = Sheet(
    hosts=(*LINUX, "linux-x64-cpu"),
    docker=("linux-x64-cuda", "linux-arm64-cuda", "linux-arm64-gb10"),
    always={
        "model_path": "/data/qwen3",
        "host": "127.0.0.1",
        "port": 21000,
        "served_model_name": "tiny",
        "enable_metrics": True,
    },
    inside={"model_path": "/models/qwen3", "host": "0.0.0.0", "port": 30000},
    knobs={
        "tensorParallel": ({"tensorParallel": 2}, {"tp_size": 2}),
        "pipelineParallel": ({"pipelineParallel": 2}, {"pp_size": 2}),
        "maxContextLength": ({"maxContextLength": 8192}, {"context_length": 8192}),
        "memoryFraction": ({"memoryFraction": 0.85}, {"mem_fraction_static": 0.85}),
        "maxConcurrentRequests": ({"maxConcurrentRequests": 16}, {"max_running_requests": 16}),
        "kvCacheDtype": ({"kvCacheDtype": "fp8_e5m2"}, {"kv_cache_dtype": "fp8_e5m2"}),
        "kvCacheDtype-of-vllm": ({"kvCacheDtype": "fp8"}, {"kv_cache_dtype": "fp8_e4m3"}),
        "kvCacheDtype-unknown": ({"kvCacheDtype": "float16"}, {}),
        "dtype": ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
        "quantization": ({"quantization": "awq"}, {"quantization": "awq"}),
        "trustRemoteCode": ({"trustRemoteCode": True}, {"trust_remote_code": True}),
        "toolCallParser": ({"toolCallParser": "hermes"}, {"tool_call_parser": "hermes"}),
        "toolCallParser-auto": ({"toolCallParser": "auto"}, {"tool_call_parser": "auto"}),
        "toolCallParser-of-vllm": (
            {"toolCallParser": "deepseek_v3"},
            {"tool_call_parser": "deepseekv3"},
        ),
        "reasoningParser": ({"reasoningParser": "qwen3"}, {"reasoning_parser": "qwen3"}),
        "reasoningParser-auto": ({"reasoningParser": "auto"}, {"reasoning_parser": "auto"}),
        "reasoningParser-of-vllm": (
            {"reasoningParser": "openai_gptoss"},
            {"reasoning_parser": "gpt-oss"},
        ),
        "neutral": (NEUTRAL, {}),
    },
    every=(
        EVERY,
        {
            "context_length": 8192,
            "mem_fraction_static": 0.85,
            "max_running_requests": 16,
            "kv_cache_dtype": "fp8_e4m3",
            "dtype": "bfloat16",
            "quantization": "awq",
            "trust_remote_code": True,
            "tool_call_parser": "hermes",
            "reasoning_parser": "qwen3",
        },
    ),
    overrides={
        "tp": over("--tp-size", "4", tensorParallel=2, lands={"tp_size": 4}),
        "tp-alias": over("--tensor-parallel-size", "4", tensorParallel=2, lands={"tp_size": 4}),
        "tp-equals": over("--tp-size=4", tensorParallel=2, lands={"tp_size": 4}),
        "tp-beginning": over("--tp", "4", tensorParallel=2, lands={"tp_size": 4}),
        "pp-alias": over("--pipeline-parallel-size=4", pipelineParallel=2, lands={"pp_size": 4}),
        "context": over(
            "--context-length", "4Ki", maxContextLength=8192, lands={"context_length": 4096}
        ),
        "memory-beginning": over(
            "--mem-frac", "0.5", memoryFraction=0.9, lands={"mem_fraction_static": 0.5}
        ),
        "requests": over(
            "--max-running-requests=4", maxConcurrentRequests=16, lands={"max_running_requests": 4}
        ),
        "kv-cache": over(
            "--kv-cache-dtype", "bf16", kvCacheDtype="fp8", lands={"kv_cache_dtype": "bf16"}
        ),
        "dtype": over("--dtype=half", dtype="bfloat16", lands={"dtype": "half"}),
        "quantization": over(
            "--quantization", "fp8", quantization="awq", lands={"quantization": "fp8"}
        ),
        "trust-again": over(
            "--trust-remote-code", trustRemoteCode=True, lands={"trust_remote_code": True}
        ),
        "metrics-again": over("--enable-metrics", lands={}),
        "metrics-for-all": over(
            "--enable-metrics-for-all-schedulers",
            lands={"enable_metrics_for_all_schedulers": True},
        ),
        "tools": over(
            "--tool-call-parser",
            "qwen25",
            toolCallParser="hermes",
            lands={"tool_call_parser": "qwen25"},
        ),
        "reasoning": over(
            "--reasoning-parser=kimi", reasoningParser="qwen3", lands={"reasoning_parser": "kimi"}
        ),
        "name": over(
            "--served-model-name=org/other:q4", lands={"served_model_name": "org/other:q4"}
        ),
        "model": over("--model-path", "/other", lands={"model_path": "/other"}),
        "model-alias": over("--model=/other", lands={"model_path": "/other"}),
        "address": over(
            "--host=0.0.0.0", "--port", "9001", lands={"host": "0.0.0.0", "port": 9001}
        ),
        "json": over(
            *("--json-model-override-args", '{"a b": "c=\\"d\\""}'),
            lands={"json_model_override_args": '{"a b": "c=\\"d\\""}'},
        ),
    },
)
