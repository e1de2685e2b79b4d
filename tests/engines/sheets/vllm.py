"""vLLM 0.33: where each knob lands in the namespace of its parser."""

from tests.engines.matrix import Sheet
from tests.engines.sheets.common import EVERY, LINUX, NEUTRAL, over

SHEET = Sheet(
    hosts=(*LINUX, "linux-x64-cpu", "linux-arm64-cpu"),
    docker=(
        *("linux-x64-cuda", "linux-arm64-cuda", "linux-arm64-gb10", "linux-x64-rocm"),
        *("linux-x64-xpu", "linux-x64-cpu", "linux-arm64-cpu"),
    ),
    always={
        "model_tag": "/data/qwen3",
        "host": "127.0.0.1",
        "port": 21000,
        "served_model_name": ["tiny"],
    },
    inside={"model_tag": "/models/qwen3", "host": "0.0.0.0", "port": 8000},
    knobs={
        "tensorParallel": ({"tensorParallel": 2}, {"tensor_parallel_size": 2}),
        "pipelineParallel": ({"pipelineParallel": 2}, {"pipeline_parallel_size": 2}),
        "maxContextLength": ({"maxContextLength": 8192}, {"max_model_len": 8192}),
        "memoryFraction": ({"memoryFraction": 0.85}, {"gpu_memory_utilization": 0.85}),
        "maxConcurrentRequests": ({"maxConcurrentRequests": 16}, {"max_num_seqs": 16}),
        "kvCacheDtype": ({"kvCacheDtype": "fp8"}, {"kv_cache_dtype": "fp8"}),
        "kvCacheDtype-of-llamacpp": ({"kvCacheDtype": "q8_0"}, {}),
        "kvCacheDtype-short": ({"kvCacheDtype": "bf16"}, {"kv_cache_dtype": "bfloat16"}),
        "dtype": ({"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
        "dtype-short": ({"dtype": "fp16"}, {"dtype": "float16"}),
        "dtype-unknown": ({"dtype": "q4_0"}, {}),
        "quantization": ({"quantization": "awq"}, {"quantization": "awq"}),
        "trustRemoteCode": ({"trustRemoteCode": True}, {"trust_remote_code": True}),
        "toolCallParser": (
            {"toolCallParser": "hermes"},
            {"tool_call_parser": "hermes", "enable_auto_tool_choice": True},
        ),
        "toolCallParser-of-sglang": (
            {"toolCallParser": "gpt-oss"},
            {"tool_call_parser": "openai", "enable_auto_tool_choice": True},
        ),
        "toolCallParser-auto": ({"toolCallParser": "auto"}, {}),
        "reasoningParser": ({"reasoningParser": "qwen3"}, {"reasoning_parser": "qwen3"}),
        "reasoningParser-of-sglang": (
            {"reasoningParser": "deepseek-r1"},
            {"reasoning_parser": "deepseek_r1"},
        ),
        "neutral": (NEUTRAL, {}),
    },
    every=(
        EVERY,
        {
            "max_model_len": 8192,
            "gpu_memory_utilization": 0.85,
            "max_num_seqs": 16,
            "kv_cache_dtype": "fp8",
            "dtype": "bfloat16",
            "quantization": "awq",
            "trust_remote_code": True,
            "tool_call_parser": "hermes",
            "enable_auto_tool_choice": True,
            "reasoning_parser": "qwen3",
        },
    ),
    overrides={
        "tp": over(
            "--tensor-parallel-size", "4", tensorParallel=2, lands={"tensor_parallel_size": 4}
        ),
        "tp-equals": over(
            "--tensor-parallel-size=4", tensorParallel=2, lands={"tensor_parallel_size": 4}
        ),
        "tp-underscores": over(
            "--tensor_parallel_size", "4", tensorParallel=2, lands={"tensor_parallel_size": 4}
        ),
        "tp-short": over("-tp", "4", tensorParallel=2, lands={"tensor_parallel_size": 4}),
        "tp-short-equals": over("-tp=4", tensorParallel=2, lands={"tensor_parallel_size": 4}),
        "tp-beginning": over(
            "--tensor-par", "4", tensorParallel=2, lands={"tensor_parallel_size": 4}
        ),
        "pp-short": over("-pp", "4", pipelineParallel=2, lands={"pipeline_parallel_size": 4}),
        "context": over(
            "--max-model-len=32k", maxContextLength=8192, lands={"max_model_len": 32000}
        ),
        "context-auto": over(
            "--max-model-len", "-1", maxContextLength=8192, lands={"max_model_len": -1}
        ),
        "memory-alias": over(
            *("--device-memory-utilization", "0.5"),
            memoryFraction=0.9,
            lands={"gpu_memory_utilization": 0.5},
        ),
        "memory-underscores-equals": over(
            "--gpu_memory_utilization=0.5",
            memoryFraction=0.9,
            lands={"gpu_memory_utilization": 0.5},
        ),
        "requests": over(
            "--max-num-seqs", "4", maxConcurrentRequests=16, lands={"max_num_seqs": 4}
        ),
        "kv-cache": over(
            "--kv-cache-dtype", "fp8_e5m2", kvCacheDtype="fp8", lands={"kv_cache_dtype": "fp8_e5m2"}
        ),
        "dtype": over("--dtype=half", dtype="bfloat16", lands={"dtype": "half"}),
        "quantization-short": over("-q", "fp8", quantization="awq", lands={"quantization": "fp8"}),
        "quantization-attached": over("-qfp8", quantization="awq", lands={"quantization": "fp8"}),
        "trust-again": over(
            "--trust-remote-code", trustRemoteCode=True, lands={"trust_remote_code": True}
        ),
        "trust-no": over("--no-trust-remote-code", trustRemoteCode=True, lands={}),
        "trust-no-underscores": over("--no_trust_remote_code", trustRemoteCode=True, lands={}),
        "tools-parser": over(
            "--tool-call-parser",
            "mistral",
            toolCallParser="hermes",
            lands={"tool_call_parser": "mistral"},
        ),
        "tools-companion-given": over(
            "--enable-auto-tool-choice",
            toolCallParser="hermes",
            lands={"tool_call_parser": "hermes", "enable_auto_tool_choice": True},
        ),
        "tools-companion-disabled": over(
            "--disable-auto-tool-choice",
            toolCallParser="hermes",
            lands={"tool_call_parser": "hermes"},
        ),
        "tools-companion-no-enable": over(
            "--no-enable-auto-tool-choice",
            toolCallParser="hermes",
            lands={"tool_call_parser": "hermes"},
        ),
        "reasoning": over(
            "--reasoning-parser=mistral",
            reasoningParser="qwen3",
            lands={"reasoning_parser": "mistral"},
        ),
        "name": over("--served-model-name", "other", lands={"served_model_name": ["other"]}),
        "name-many": over(
            *("--served-model-name", "a", "b", "--seed", "7"),
            lands={"served_model_name": ["a", "b"], "seed": 7},
        ),
        "model": over("--model", "/other", lands={"model_tag": "/other"}),
        "model-equals": over("--model=/other", lands={"model_tag": "/other"}),
        "address": over(
            "--host", "0.0.0.0", "--port=9001", lands={"host": "0.0.0.0", "port": 9001}
        ),
        "json": over(
            *("--hf-overrides", '{"rope_scaling": {"factor": 2.0}, "a b": "c=\\"d\\""}'),
            lands={"hf_overrides": {"rope_scaling": {"factor": 2.0}, "a b": 'c="d"'}},
        ),
    },
)
