"""The size of a cache of keys and values, as each engine lays it out."""

from collections.abc import Mapping

from supervisor.contracts.engine import EngineId
from supervisor.contracts.model import ModelFacts, Serving
from supervisor.models.ggml import CACHE_TYPES

PAD = 256
"""Cells that llama.cpp rounds its cache up to (``GGML_PAD(n_ctx, 256)``)."""

ELEMENT_SIXTEENTHS: Mapping[str, int] = {
    "float32": 64,
    "float16": 32,
    "half": 32,
    "bf16": 32,
    "bfloat16": 32,
    "nvfp4": 9,  # four bits, and a scale of a byte for each block of 16
    "fp4_mx_block16": 9,
}
"""Sixteenths of a byte an element, in the Python engines. Kinds of fp8 and int8 (one byte) and intN
are told by their names."""


def context_of(facts: ModelFacts, serving: Serving) -> int | None:
    """Tokens that all slots have together, or one request where slots do not divide a cache."""
    return serving.context or facts.context_length


def cache_bytes(engine: EngineId, facts: ModelFacts, serving: Serving, context: int) -> int | None:
    """For ``context`` tokens; ``None`` where the model's files do not say what a layer keeps."""
    if not facts.layers:
        return 0 if facts.recurrent else None
    if engine == "llamacpp":
        return _of_llama(facts, serving, context)
    keys, values = (_element(kind, facts.dtype) for kind in (serving.key_type, serving.value_type))
    total = 0
    for layer in facts.layers:
        tokens = context
        if layer.window is not None and not serving.whole_window:
            tokens = min(context, layer.window + serving.micro_batch)
        total += layer.count * tokens * (layer.keys * keys + layer.values * values)
    return total // 16


def llama_cells(serving: Serving, context: int, window: int | None) -> tuple[int, int]:
    """Cells of one stream of the cache that layers with ``window`` have, and how many streams.

    Slots that share nothing have a stream each, of an equal share rounded up (llama-context.cpp;
    measured: 1000 tokens in 3 slots make 3 streams of 512). Of a window there is one for each slot
    of the stream, and room for a batch (llama-kv-cache-iswa.cpp).
    """
    streams = 1 if serving.pooled else serving.slots
    cells = _padded(_padded(context) // streams)
    if window is not None and not serving.whole_window:
        windows = window * (serving.slots if serving.pooled else 1)
        cells = min(cells, _padded(windows + serving.micro_batch))
    return cells, streams


def _of_llama(facts: ModelFacts, serving: Serving, context: int) -> int:
    total = 0
    for layer in facts.layers:
        cells, streams = llama_cells(serving, context, layer.window)
        row = _row(serving.key_type, layer.keys) + _row(serving.value_type, layer.values)
        total += layer.count * cells * streams * row
    return total


def _padded(cells: int) -> int:
    return -(-cells // PAD) * PAD


def _row(kind: str, elements: int) -> int:
    """Bytes of one token's keys; ggml counts in whole blocks."""
    block, size = CACHE_TYPES.get(kind, CACHE_TYPES["f16"])
    return -(-elements // block) * size


def _element(kind: str, weights: str | None) -> int:
    """In sixteenths of a byte."""
    kind = kind.lower()
    if kind == "auto":
        return 64 if weights == "float32" else 32
    if kind in ELEMENT_SIXTEENTHS:
        return ELEMENT_SIXTEENTHS[kind]
    if kind.startswith("int") and kind[3:4].isdecimal():
        return 2 * int(kind[3:4])
    return 16 if "fp8" in kind else 32
