"""From a GGUF file's metadata to what each layer keeps of a token, as llama.cpp computes it."""

from collections import Counter
from collections.abc import Mapping

from supervisor.contracts.model import CacheLayer, ModelFacts
from supervisor.models.gguf import Gguf, Value
from supervisor.models.reading import BadFile

WINDOW_PERIOD: Mapping[str, int] = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gemma-embedding": 6,
    "cohere2": 4,
    "gpt-oss": 2,
    "exaone4": 4,
    "llama4": 4,
    "olmo2": 4,
    "smallthinker": 4,
}
"""Every so many layers one sees all tokens and the others a window (``set_swa_pattern`` in
llama-model.cpp). Other architectures' windows are not made use of there, or not known here."""
CHUNK_OF_LLAMA4 = 8192
MAX_LAYERS = 4096
UNTOLD = -1
PROJECTORS = ("clip", "mmproj")


def is_projector(metadata: Mapping[str, Value]) -> bool:
    """Whether it is the part of a model that reads images or sound."""
    return any(metadata.get(f"general.{key}") in PROJECTORS for key in ("architecture", "type"))


def shape(file: Gguf, weights_bytes: int, files: tuple[str, ...]) -> ModelFacts:
    """The facts of a model whose first file is ``file``. Raises ``BadFile``."""
    architecture = file.text("general.architecture")
    if not architecture:
        raise BadFile("does not say its architecture")
    if is_projector(file.metadata):
        return ModelFacts(
            format="gguf",
            architecture=architecture,
            weights_bytes=weights_bytes,
            layers=(),
            projector=True,
            files=files,
        )
    layers, recurrent = _layers(file, architecture)
    vocabulary = file.number(f"{architecture}.vocab_size")
    return ModelFacts(
        format="gguf",
        architecture=architecture,
        weights_bytes=weights_bytes,
        layers=layers,
        context_length=file.number(f"{architecture}.context_length"),
        embedding_length=file.number(f"{architecture}.embedding_length"),
        feed_forward_length=max(_each(file, f"{architecture}.feed_forward_length", 1, 0)) or None,
        heads=max(_each(file, f"{architecture}.attention.head_count", 1, 0)) or None,
        vocabulary=vocabulary,
        experts=file.number(f"{architecture}.expert_count"),
        recurrent=recurrent,
        files=files,
    )


def _layers(file: Gguf, architecture: str) -> tuple[tuple[CacheLayer, ...], bool]:
    count = file.number(f"{architecture}.block_count")
    width = file.number(f"{architecture}.embedding_length")
    if not count or count > MAX_LAYERS or not width:
        raise BadFile(f"says nothing sensible of {architecture}'s layers")
    attention = f"{architecture}.attention"
    heads = _each(file, f"{attention}.head_count", count, 0)
    of_cache = _each(file, f"{attention}.head_count_kv", count, UNTOLD)
    alone = next((number for number in heads if number), 0)
    length = width // alone if alone else 0
    keys = file.number(f"{attention}.key_length") or length
    values = file.number(f"{attention}.value_length") or length
    if file.number(f"{attention}.key_length_mla"):
        values = 0  # MLA: they are a part of what is kept as keys (measured: a cache of 0 MiB)
    windowed, window = _windows(file, architecture, count)
    skipped = _without(file, architecture, count)
    found: Counter[tuple[int, int, int | None]] = Counter()
    for layer in range(count):
        many = heads[layer] if of_cache[layer] == UNTOLD else of_cache[layer]
        if not many or layer in skipped:
            continue
        found[many * keys, many * values, window if windowed[layer] else None] += 1
    # Fewer layers than there are keep tokens: the others keep a state, or nothing.
    recurrent = sum(found.values()) < count and any(
        key.startswith(f"{architecture}.ssm.") for key in file.metadata
    )
    return (
        tuple(
            CacheLayer(count=times, keys=k, values=v, window=w)
            for (k, v, w), times in found.items()
        ),
        recurrent,
    )


def _each(file: Gguf, key: str, count: int, missing: int) -> tuple[int, ...]:
    """A number for each layer: one for all, or a list."""
    value = file.metadata.get(key)
    if isinstance(value, tuple):
        if len(value) < count:
            raise BadFile(f"has {len(value)} numbers as {key} for {count} layers")
        return tuple(int(one) if 0 <= one < 1 << 32 else 0 for one in value)
    one = file.number(key)
    return (missing if one is None else one,) * count


def _windows(file: Gguf, architecture: str, count: int) -> tuple[tuple[bool, ...], int | None]:
    """Which layers see a window, and how far."""
    nowhere = (False,) * count
    window = file.number(f"{architecture}.attention.sliding_window")
    if architecture == "llama4":
        window = file.number("llama4.attention.chunk_size") or CHUNK_OF_LLAMA4
    if not window:
        return nowhere, None
    told = file.metadata.get(f"{architecture}.attention.sliding_window_pattern")
    if isinstance(told, tuple) and len(told) >= count:
        return tuple(bool(one) for one in told[:count]), window
    period = WINDOW_PERIOD.get(architecture, 0)
    if isinstance(told, int) and not isinstance(told, bool) and 0 < told <= count:
        period = told
    if not period:
        return nowhere, None
    return tuple(layer % period < period - 1 for layer in range(count)), window


def _without(file: Gguf, architecture: str, count: int) -> frozenset[int]:
    """Layers that keep no tokens of their own though they have heads."""
    interval = file.number(f"{architecture}.full_attention_interval")
    linear = {n for n in range(count) if interval and (n + 1) % interval}
    shared = file.number(f"{architecture}.attention.shared_kv_layers") or 0
    return frozenset(linear | set(range(max(0, count - shared), count)))
