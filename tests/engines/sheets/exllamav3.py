"""TabbyAPI: where each knob lands in its validated configuration."""

from tests.engines.matrix import Sheet
from tests.engines.sheets.common import EVERY, NEUTRAL, over

SHEET = Sheet(
    hosts=("linux-x64-cuda", "linux-x64-cuda-wsl"),
    docker=("linux-x64-cuda",),
    always={"model_dir": "/data", "model_name": "qwen3", "host": "127.0.0.1", "port": 21000},
    inside={"model_dir": "/app/models", "host": "0.0.0.0", "port": 5000},
    knobs={
        "tensorParallel": ({"tensorParallel": 2}, {"tensor_parallel": True}),
        "pipelineParallel": ({"pipelineParallel": 2}, {}),
        "maxContextLength": ({"maxContextLength": 8000}, {"max_seq_len": 8000, "cache_size": 8192}),
        "maxContextLength-by-requests": (
            {"maxContextLength": 8000, "maxConcurrentRequests": 4},
            {"max_seq_len": 8000, "cache_size": 32000, "max_batch_size": 4},
        ),
        "memoryFraction": ({"memoryFraction": 0.85}, {}),
        "maxConcurrentRequests": ({"maxConcurrentRequests": 16}, {"max_batch_size": 16}),
        "kvCacheDtype": ({"kvCacheDtype": "fp16"}, {"cache_mode": "FP16"}),
        "kvCacheDtype-of-llamacpp": ({"kvCacheDtype": "q8_0"}, {"cache_mode": "Q8"}),
        "kvCacheDtype-bits": ({"kvCacheDtype": "6,5"}, {"cache_mode": "6,5"}),
        "kvCacheDtype-unknown": ({"kvCacheDtype": "fp8"}, {}),
        "dtype": ({"dtype": "bfloat16"}, {}),
        "quantization": ({"quantization": "awq"}, {}),
        "trustRemoteCode": ({"trustRemoteCode": True}, {}),
        "toolCallParser": ({"toolCallParser": "qwen3_coder"}, {"tool_format": "qwen3_coder"}),
        "toolCallParser-of-sglang": ({"toolCallParser": "gpt-oss"}, {"tool_format": "harmony"}),
        "toolCallParser-unknown": ({"toolCallParser": "hermes"}, {}),
        "reasoningParser": ({"reasoningParser": "qwen3"}, {"reasoning": True}),
        "neutral": (NEUTRAL, {}),
    },
    every=(
        {**EVERY, "kvCacheDtype": "q4_0", "toolCallParser": "mistral"},
        {
            "max_seq_len": 8192,
            "cache_size": 131072,
            "max_batch_size": 16,
            "cache_mode": "Q4",
            "tool_format": "mistral",
            "reasoning": True,
        },
    ),
    overrides={
        "model-name": over("--model-name", "other", lands={"model_name": "other"}),
        "model-both": over(
            "--model-dir=/m", "--model-name=o", lands={"model_dir": "/m", "model_name": "o"}
        ),
        "context": over(
            *("--max-seq-len", "4096"),
            maxContextLength=8192,
            lands={"max_seq_len": 4096, "cache_size": 4096},
        ),
        "context-beginning": over(
            "--max-seq=4096", maxContextLength=8192, lands={"max_seq_len": 4096, "cache_size": 4096}
        ),
        "context-of-the-model": over(
            "--max-seq-len", "-1", maxContextLength=8192, lands={"max_seq_len": -1}
        ),
        "cache": over(
            *("--cache-size", "16384"),
            maxContextLength=8192,
            lands={"max_seq_len": 8192, "cache_size": 16384},
        ),
        "batch": over(
            *("--max-batch-size", "2"),
            maxContextLength=8192,
            maxConcurrentRequests=16,
            lands={"max_seq_len": 8192, "cache_size": 16384, "max_batch_size": 2},
        ),
        "cache-mode": over("--cache-mode", "8,4", kvCacheDtype="q4_0", lands={"cache_mode": "8,4"}),
        "tensor-parallel": over("--tensor-parallel", "false", tensorParallel=2, lands={}),
        "tools": over(
            "--tool-format=gemma4", toolCallParser="mistral", lands={"tool_format": "gemma4"}
        ),
        "reasoning": over("--reasoning", "false", reasoningParser="qwen3", lands={}),
        "address": over(
            "--host", "0.0.0.0", "--port=9001", lands={"host": "0.0.0.0", "port": 9001}
        ),
        "many-values": over("--gpu-split", "20", "22.5", lands={"gpu_split": [20.0, 22.5]}),
    },
)
