"""Will a model, served in a certain way, fit the devices of a launch? Pure arithmetic.

Weights and cache are computed; what an engine needs besides is an overhead, stated here. How far
that is from the truth for llama-server is measured by ``bench/figures/fit.py`` and written down in
``docs/fit.md``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from msgspec.structs import replace

from supervisor.contracts.engine import EngineId
from supervisor.contracts.model import Fit, ModelFacts, Room, Serving, Unreadable
from supervisor.models.cache import cache_bytes, context_of, llama_cells

MIB = 1 << 20
GIB = 1 << 30

LLAMA_PROGRAM = 48 * MIB
"""llama-server itself: its code, its vocabulary tables, HTTP threads (measured)."""
SMALLEST_CONTEXT = 4096
"""To which llama-server shrinks a context that nobody named (``-fitc``)."""
SGLANG_FRACTION = 0.88
"""What SGLang computes for most cards when it is told nothing."""
VLLM_CPU_CACHE = 4 * GIB
"""Of vLLM on a CPU, without VLLM_CPU_KVCACHE_SPACE."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Beyond weights and cache, on each device."""

    gpu: int
    """With the vendor's context and compiled graphs."""
    host: int
    """On a processor, or Metal; once."""


PROCESSOR = ("cpu", "metal")
OVERHEADS: Mapping[EngineId, Overhead] = {
    "llamacpp": Overhead(400 * MIB, 0),
    "vllm": Overhead(2 * GIB, 1 * GIB),
    "sglang": Overhead(2 * GIB, 1 * GIB),
    "mlx": Overhead(1 * GIB, 512 * MIB),
    "exllamav3": Overhead(1 * GIB, 1 * GIB),
}


def estimate(
    engine: EngineId,
    facts: ModelFacts | Unreadable,
    serving: Serving,
    rooms: Sequence[Room],
    beside_bytes: int = 0,
) -> Fit:
    """``beside_bytes``: weights of further models that are loaded with this one."""
    free = free_bytes(serving, rooms)
    if isinstance(facts, Unreadable):
        return unknown(f"the model's size is not known: {facts.reason}", free)
    weights = facts.weights_bytes + beside_bytes
    context = context_of(facts, serving)
    cache, remark = _cache(engine, facts, serving, context, rooms)
    fit = _verdict(engine, facts, serving, rooms, free, (weights, cache, context))
    if remark:
        fit = replace(fit, why=f"{fit.why}; {remark}")
    if fit.fits is False and engine == "llamacpp":
        return _shrunk(fit, facts, serving, rooms, weights)
    return fit


def unknown(why: str, free: int | None = None) -> Fit:
    return Fit(
        fits=None,
        weights_bytes=None,
        kv_bytes=None,
        overhead_bytes=None,
        need_bytes=None,
        free_bytes=free,
        why=why,
    )


def free_bytes(serving: Serving, rooms: Sequence[Room]) -> int | None:
    """What the engine can have of all devices together; ``None`` where one does not tell.

    Engines that work in step on all devices can use no more of each than of the fullest. Host
    memory is one, however many devices draw on it.
    """
    frees = [room.free for room in rooms]
    if not frees or any(free is None for free in frees):
        return None
    known = [free for free in frees if free is not None]
    if any(room.hosts for room in rooms):
        return min(known)
    return sum(known) if serving.splits == "layers" else len(known) * min(known)


def _cache(
    engine: EngineId,
    facts: ModelFacts,
    serving: Serving,
    context: int | None,
    rooms: Sequence[Room],
) -> tuple[int | None, str]:
    """The cache that is there from the start, and what should be known about it."""
    if serving.cache_bytes is not None:
        return serving.cache_bytes, ""
    one = None if context is None else cache_bytes(engine, facts, serving, context)
    if engine == "mlx":
        each = cache_bytes(engine, facts, serving, 1)
        return 0, "" if each is None else f"its cache grows with use, by {size(each)} a token"
    if engine == "vllm" and serving.shrinks:
        return 0, "it takes as much context as fits"
    if engine == "vllm" and any(room.on_cpu for room in rooms):
        return max(one or 0, VLLM_CPU_CACHE), ""
    if one is None:
        return None, "the model's files do not say how large its cache is"
    notes = ["the state of its recurrent layers is not counted"] if facts.recurrent else []
    if engine in ("vllm", "sglang"):
        notes.insert(0, f"the cache counts one request of {context} tokens")
    return one, ", ".join(notes)


def _verdict(
    engine: EngineId,
    facts: ModelFacts,
    serving: Serving,
    rooms: Sequence[Room],
    free: int | None,
    parts: tuple[int, int | None, int | None],
) -> Fit:
    weights, cache, context = parts
    kept = weights + (cache or 0)
    overhead = _overhead(engine, facts, serving, rooms, context)
    claim = _claim(engine, serving, rooms)
    need, sentence = kept + overhead, ""
    if engine == "sglang" and rooms and not any(room.on_cpu for room in rooms):
        share = serving.fraction or SGLANG_FRACTION
        overhead = max(overhead, ceil(kept / share) - kept)
        need = kept + overhead
    elif claim is not None and need <= claim:
        overhead, need = overhead + claim - need, claim
        sentence = f"it takes {serving.fraction:g} of each device for itself: "
    elif claim is not None:
        return Fit(
            fits=False,
            weights_bytes=weights,
            kv_bytes=cache,
            overhead_bytes=overhead,
            need_bytes=need,
            free_bytes=free,
            why=f"{_sum(need, weights, cache, overhead)}, more than the {size(claim)} that "
            f"{serving.fraction:g} of the devices' memory is",
        )
    fits = None if free is None or (cache is None and need <= free) else need <= free
    where = ", ".join(room.device for room in rooms) or "no device"
    have = f"nothing tells what is free on {where}"
    if free is not None:
        have = f"{size(free)} {'is' if need <= free else 'are all that is'} free on {where}"
    return Fit(
        fits=fits,
        weights_bytes=weights,
        kv_bytes=cache,
        overhead_bytes=overhead,
        need_bytes=need,
        free_bytes=free,
        why=f"{sentence}{_sum(need, weights, cache, overhead)}; {have}",
    )


def _overhead(
    engine: EngineId,
    facts: ModelFacts,
    serving: Serving,
    rooms: Sequence[Room],
    context: int | None,
) -> int:
    its = OVERHEADS[engine]
    total = sum(its.gpu for room in rooms if room.accelerator not in PROCESSOR)
    if not total:
        total = its.host
    if engine == "llamacpp":
        total += LLAMA_PROGRAM + llama_buffers(facts, serving, context or SMALLEST_CONTEXT)
    return total


def llama_buffers(facts: ModelFacts, serving: Serving, context: int) -> int:
    """llama.cpp's compute and output buffers, about: for each token of a micro-batch the widest
    activations of a layer and a row of each attention mask (f16), without flash attention the
    scores of all heads too; and the logits of every slot."""
    width = facts.embedding_length or 0
    inner = facts.feed_forward_length or 4 * width
    windows = {layer.window for layer in facts.layers}
    cells = [llama_cells(serving, context, window)[0] for window in windows] or [0]
    scores = 0 if serving.flash else 4 * (facts.heads or 0) * max(cells)
    token = 4 * (3 * inner + 5 * width) + 2 * sum(cells) + scores
    return serving.micro_batch * token + serving.slots * 4 * (facts.vocabulary or 0)


def _claim(engine: EngineId, serving: Serving, rooms: Sequence[Room]) -> int | None:
    """What vLLM takes of its devices whatever it needs, and what it refuses to start below."""
    if engine != "vllm" or serving.fraction is None or any(room.on_cpu for room in rooms):
        return None
    totals = [room.total for room in rooms if room.total is not None]
    if not totals or len(totals) < len(rooms):
        return None
    return int(serving.fraction * min(totals)) * len(totals)


def _shrunk(
    fit: Fit, facts: ModelFacts, serving: Serving, rooms: Sequence[Room], weights: int
) -> Fit:
    """llama-server helps itself where memory is short: with less context if none was named, and on
    a card with layers that stay in host memory."""
    context = context_of(facts, serving) or 0
    if serving.shrinks and context > SMALLEST_CONTEXT:
        cache = cache_bytes("llamacpp", facts, serving, SMALLEST_CONTEXT) or 0
        need = weights + cache + _overhead("llamacpp", facts, serving, rooms, SMALLEST_CONTEXT)
        if fit.free_bytes is not None and need <= fit.free_bytes:
            why = f"{fit.why}; of its {context} tokens llama-server will keep as many as fit"
            return replace(fit, fits=None, why=why)
    if any(room.hosts for room in rooms):
        return fit
    layers = sum(layer.count for layer in facts.layers)
    fewer = serving.device_layers is not None and serving.device_layers < layers
    if serving.keeps_back or fewer:
        why = f"{fit.why}; but the launch keeps a part of it in host memory"
        return replace(fit, fits=None, why=why)
    return replace(fit, why=f"{fit.why}; layers that do not fit run on the CPU, slowly")


def _sum(need: int, weights: int, cache: int | None, overhead: int) -> str:
    counted = "cache unknown" if cache is None else f"cache {size(cache)}"
    return f"needs about {size(need)} (weights {size(weights)}, {counted}, rest {size(overhead)})"


def size(count: int) -> str:
    """For people: three digits and a binary unit."""
    value, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1000:
            break
        value, unit = value / 1024, larger
    return f"{value:.3g} {unit}"
