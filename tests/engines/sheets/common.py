"""What the sheets share: neutral knobs, all knobs, and a short way to write an override."""

from collections.abc import Mapping
from typing import Any

from tests.engines.matrix import Override

NEUTRAL = {
    "tensorParallel": 1,
    "pipelineParallel": 1,
    "kvCacheDtype": "auto",
    "dtype": "auto",
    "quantization": None,
    "trustRemoteCode": False,
    "toolCallParser": None,
    "reasoningParser": None,
}
SIZES = {"maxContextLength": 8192, "memoryFraction": 0.85, "maxConcurrentRequests": 16}
EVERY = {
    **SIZES,
    "kvCacheDtype": "fp8",
    "dtype": "bfloat16",
    "quantization": "awq",
    "trustRemoteCode": True,
    "toolCallParser": "hermes",
    "reasoningParser": "qwen3",
}
LINUX = (
    *("linux-x64-cuda", "linux-arm64-cuda", "linux-arm64-gb10", "linux-x64-cuda-wsl"),
    *("linux-x64-rocm", "linux-x64-xpu"),
)


def over(*extra: str, lands: Mapping[str, Any], **options: Any) -> Override:
    return Override(options=options, extra=extra, lands=lands)
