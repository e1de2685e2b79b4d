"""From a Hugging Face ``config.json`` to what each layer keeps of a token."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.contracts.model import CacheLayer, ModelFacts
from supervisor.models.reading import BadFile, whole
from supervisor.models.safetensors import weights_of

MAX_CONFIG = 8 << 20
MAX_LAYERS = 4096
LARGEST = 1 << 40
"""A number above this is no property of a model."""
_INNER = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where a model of several parts keeps what its language part is."""
_ATTENTION = ("full_attention", "attention", "attn", "global")
_WINDOWED = ("sliding_attention", "chunked_attention", "local")


def shape(folder: str) -> ModelFacts:
    """The facts of a model's directory. Raises ``BadFile``."""
    config = _config(folder)
    weights, files = weights_of(folder)
    text = _text_part(config)
    layers, recurrent = _layers(text)
    return ModelFacts(
        format="safetensors",
        architecture=_architecture(config),
        weights_bytes=weights,
        layers=layers,
        context_length=_number(
            text, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length"
        ),
        embedding_length=_number(text, "hidden_size", "n_embd", "d_model"),
        feed_forward_length=_number(text, "intermediate_size", "n_inner", "ffn_hidden_size"),
        vocabulary=_number(text, "vocab_size"),
        experts=_number(text, "num_local_experts", "num_experts", "n_routed_experts"),
        dtype=_word(text, "dtype", "torch_dtype") or _word(config, "dtype", "torch_dtype"),
        recurrent=recurrent,
        files=files,
    )


def _config(folder: str) -> dict[str, Any]:
    try:
        # The standard library's reader, for it takes the Infinity and NaN that transformers writes.
        config = json.loads(whole(os.path.join(folder, "config.json"), MAX_CONFIG))
    except (ValueError, RecursionError) as error:
        raise BadFile(f"its config.json makes no sense: {error}") from None
    if not isinstance(config, dict):
        raise BadFile("its config.json makes no sense: it is no object")
    return config


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(3):
        inner = next((config[k] for k in _INNER if isinstance(config.get(k), dict)), None)
        if inner is None:
            break
        config = inner
    return config


def _architecture(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return named[0][:200]
    return _word(config, "model_type") or "unknown"


def _layers(text: Mapping[str, Any]) -> tuple[tuple[CacheLayer, ...], bool]:
    count = _number(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if not count or count > MAX_LAYERS:
        return (), False
    keys, values = _elements(text)
    if not keys:
        return (), False
    kinds = _kinds(text, count)
    window = _number(text, "sliding_window", "attention_chunk_size")
    found: Counter[int | None] = Counter()
    for kind in kinds[: count - (_number(text, "num_kv_shared_layers") or 0)]:
        if kind in _ATTENTION:
            found[None] += 1
        elif kind in _WINDOWED:
            found[window] += 1
    layers = tuple(
        CacheLayer(count=times, keys=keys, values=values, window=reach)
        for reach, times in found.items()
    )
    return layers, any(kind not in (*_ATTENTION, *_WINDOWED) for kind in kinds)


def _elements(text: Mapping[str, Any]) -> tuple[int, int]:
    """Of keys and of values, one layer and one token."""
    if compressed := _number(text, "kv_lora_rank"):  # MLA keeps one vector for all heads
        return compressed + (_number(text, "qk_rope_head_dim") or 0), 0
    heads = _number(text, "num_attention_heads", "n_head", "n_heads")
    width = _number(text, "hidden_size", "n_embd", "d_model")
    if not heads or not width:
        return 0, 0
    shared = _number(text, "num_key_value_heads", "multi_query_group_num", "num_kv_heads")
    if shared is None:
        shared = 1 if text.get("multi_query") is True else heads
    length = _number(text, "head_dim", "kv_channels") or width // heads
    return shared * length, shared * (_number(text, "v_head_dim") or length)


def _kinds(text: Mapping[str, Any], count: int) -> Sequence[str]:
    """What each layer is; one that cannot be told is taken for a whole one, which is safe."""
    for key in ("layer_types", "layers_block_type"):
        listed = text.get(key)
        if isinstance(listed, list) and len(listed) >= count:
            return [str(one) for one in listed[:count]]
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) >= count:  # Nemotron-H: M Mamba, * attention
        return ["attention" if one == "*" else "mamba" for one in pattern[:count]]
    if interval := _number(text, "full_attention_interval"):
        return ["linear" if (n + 1) % interval else "attention" for n in range(count)]
    if not _number(text, "sliding_window") or text.get("use_sliding_window") is False:
        return ["attention"] * count
    if period := _number(text, "sliding_window_pattern"):
        return ["local" if (n + 1) % period else "attention" for n in range(count)]
    if _word(text, "model_type") in ("mistral", "mixtral", "phi3", "starcoder2"):
        return ["local"] * count
    return ["attention"] * count


def _number(where: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = where.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST:
            return value
    return None


def _word(where: Mapping[str, Any], *keys: str) -> str | None:
    words = (where.get(key) for key in keys)
    return next((word[:200] for word in words if isinstance(word, str) and word), None)
