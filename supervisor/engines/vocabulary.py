"""Words that engines share, or spell in their own way: data types and parsers.

Parser names are not portable: vLLM 0.33 writes ``deepseek_r1`` and SGLang 0.5.23 ``deepseek-r1``.
Only names that mean the same model family's format on both sides are turned into one another; any
other goes to the engine as it is, whose lists grow with every release.
"""

from collections.abc import Mapping

DTYPES: Mapping[str, str] = {
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "f32": "float32",
}
"""Of weights and activations, for engines that take PyTorch's names (and ``half``, ``float``)."""

GGML_TYPES = ("q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""Quantised types of llama.cpp's, which no other engine here has."""

_TOOLS_VLLM_TO_SGLANG: Mapping[str, str] = {
    "deepseek_v3": "deepseekv3",
    "deepseek_v31": "deepseekv31",
    "deepseek_v32": "deepseekv32",
    "deepseek_v4": "deepseekv4",
    "deepseek_v41": "deepseekv41",
    "llama3_json": "llama3",
    "hunyuan_a13b": "hunyuan",
    "minimax_m2": "minimax-m2",
    "minimax_m3": "minimax-m3",
    "openai": "gpt-oss",
}
_REASONING_VLLM_TO_SGLANG: Mapping[str, str] = {
    "deepseek_r1": "deepseek-r1",
    "deepseek_v3": "deepseek-v3",
    "deepseek_v4": "deepseek-v4",
    "deepseek_v41": "deepseek-v41",
    "hunyuan_a13b": "hunyuan",
    "minimax_m2_append_think": "minimax-append-think",
    "minimax_m3": "minimax-m3",
    "nemotron_v3": "nemotron_3",
    "openai_gptoss": "gpt-oss",
}


def _back(words: Mapping[str, str]) -> dict[str, str]:
    return {theirs: ours for ours, theirs in words.items()}


SGLANG_TOOLS = _TOOLS_VLLM_TO_SGLANG
SGLANG_REASONING = _REASONING_VLLM_TO_SGLANG
VLLM_TOOLS: Mapping[str, str] = _back(_TOOLS_VLLM_TO_SGLANG)
VLLM_REASONING: Mapping[str, str] = _back(_REASONING_VLLM_TO_SGLANG)
