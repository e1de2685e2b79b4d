"""mlx-lm 0.32: where each knob lands in the namespace of its parser."""

from tests.engines.matrix import Sheet
from tests.engines.sheets.common import EVERY, NEUTRAL, over

SHEET = Sheet(
    hosts=(
        "darwin-arm64-metal",
        "linux-x64-cuda",
        "linux-arm64-gb10",
        "linux-x64-cpu",
        "linux-arm64-cpu",
    ),
    always={"model": "/data/qwen3", "host": "127.0.0.1", "port": 21000},
    knobs={
        "tensorParallel": ({"tensorParallel": 2}, {}),
        "pipelineParallel": ({"pipelineParallel": 2}, {}),
        "maxContextLength": ({"maxContextLength": 8192}, {}),
        "memoryFraction": ({"memoryFraction": 0.85}, {}),
        "maxConcurrentRequests": ({"maxConcurrentRequests": 16}, {"decode_concurrency": 16}),
        "kvCacheDtype": ({"kvCacheDtype": "fp8"}, {}),
        "kvCacheDtype-of-llamacpp": ({"kvCacheDtype": "q8_0"}, {"kv_bits": 8}),
        "dtype": ({"dtype": "bfloat16"}, {}),
        "quantization": ({"quantization": "awq"}, {}),
        "trustRemoteCode": ({"trustRemoteCode": True}, {"trust_remote_code": True}),
        "toolCallParser": ({"toolCallParser": "hermes"}, {}),
        "reasoningParser": ({"reasoningParser": "qwen3"}, {}),
        "neutral": (NEUTRAL, {}),
    },
    every=(EVERY, {"decode_concurrency": 16, "trust_remote_code": True}),
    overrides={
        "model": over("--model=/other", lands={"model": "/other"}),
        "address": over(
            "--host", "0.0.0.0", "--port=9001", lands={"host": "0.0.0.0", "port": 9001}
        ),
        "requests": over(
            "--decode-concurrency", "4", maxConcurrentRequests=16, lands={"decode_concurrency": 4}
        ),
        "requests-beginning": over(
            "--decode-c=4", maxConcurrentRequests=16, lands={"decode_concurrency": 4}
        ),
        "trust-again": over(
            "--trust-remote-code", trustRemoteCode=True, lands={"trust_remote_code": True}
        ),
        "kv-bits": over("--kv-bits", "4", kvCacheDtype="q8_0", lands={"kv_bits": 4}),
        "json": over(
            *("--chat-template-args", '{"enable_thinking": false}'),
            lands={"chat_template_args": {"enable_thinking": False}},
        ),
    },
)
