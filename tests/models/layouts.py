"""Tiny models with weights of zero, in layouts of their own, which a real llama-server loads: one
with a window in five of six layers (Gemma 3's), one whose heads share one vector (DeepSeek's MLA).
"""

from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path

from tests.models.ggufs import F32, Made
from tests.parts.tiny_gguf import _metadata

WIDTH, HEADS, SHARED, LENGTH, INNER, LAYERS = 64, 4, 2, 32, 128, 12
WINDOW = 512
RANK, TURNED, PLAIN = 32, 16, 16
WORDS = 354


def windowed(path: Path) -> Path:
    """Gemma 3's layout."""
    metadata = _tokenizer()
    metadata |= {
        "general.architecture": "gemma3",
        "gemma3.context_length": 8192,
        "gemma3.embedding_length": WIDTH,
        "gemma3.block_count": LAYERS,
        "gemma3.feed_forward_length": INNER,
        "gemma3.attention.head_count": HEADS,
        "gemma3.attention.head_count_kv": SHARED,
        "gemma3.attention.key_length": LENGTH,
        "gemma3.attention.value_length": LENGTH,
        "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
        "gemma3.attention.sliding_window": WINDOW,
    }
    return _written(path, metadata, _windowed_shapes())


def compressed(path: Path) -> Path:
    """DeepSeek V2 Lite's layout, which is told by its 27 layers; none of them has experts."""
    metadata = _tokenizer()
    metadata |= {
        "general.architecture": "deepseek2",
        "deepseek2.context_length": 4096,
        "deepseek2.embedding_length": WIDTH,
        "deepseek2.block_count": 27,
        "deepseek2.leading_dense_block_count": 27,
        "deepseek2.feed_forward_length": INNER,
        "deepseek2.vocab_size": WORDS,
        "deepseek2.attention.head_count": HEADS,
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.kv_lora_rank": RANK,
        "deepseek2.attention.key_length": RANK + TURNED,
        "deepseek2.attention.value_length": RANK,
        "deepseek2.attention.key_length_mla": PLAIN + TURNED,
        "deepseek2.attention.value_length_mla": PLAIN,
        "deepseek2.attention.layer_norm_rms_epsilon": 1e-6,
        "deepseek2.rope.dimension_count": TURNED,
        "deepseek2.expert_count": 4,
        "deepseek2.expert_used_count": 2,
        "deepseek2.expert_shared_count": 1,
        "deepseek2.expert_feed_forward_length": 32,
        "deepseek2.expert_weights_scale": 1.0,
        "deepseek2.expert_gating_func": 1,
    }
    return _written(path, metadata, _compressed_shapes())


def _tokenizer() -> dict[str, object]:
    return {key: value for key, value in _metadata().items() if key.startswith("tokenizer.")}


def _written(
    path: Path, metadata: dict[str, object], shapes: Iterable[tuple[str, tuple[int, ...]]]
) -> Path:
    tensors, offset = [], 0
    for name, shape in shapes:
        tensors.append((name, shape, F32, offset))
        offset += -(-4 * prod(shape) // 32) * 32
    return Made(metadata=metadata, tensors=tensors, data=bytes(offset)).write(path)


def _compressed_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (WIDTH, WORDS)
    yield "output_norm.weight", (WIDTH,)
    yield "output.weight", (WIDTH, WORDS)
    for layer in range(27):
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm": (WIDTH,),
            "attn_q": (WIDTH, HEADS * (PLAIN + TURNED)),
            "attn_kv_a_mqa": (WIDTH, RANK + TURNED),
            "attn_kv_a_norm": (RANK,),
            "attn_k_b": (PLAIN, RANK, HEADS),
            "attn_v_b": (RANK, PLAIN, HEADS),
            "attn_output": (HEADS * PLAIN, WIDTH),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (WIDTH, INNER),
            "ffn_up": (WIDTH, INNER),
            "ffn_down": (INNER, WIDTH),
        }
        for name, shape in shapes.items():
            yield f"blk.{layer}.{name}.weight", shape


def _windowed_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (WIDTH, WORDS)
    yield "output_norm.weight", (WIDTH,)
    for layer in range(LAYERS):
        shapes: dict[str, tuple[int, ...]] = {
            "attn_norm": (WIDTH,),
            "attn_q": (WIDTH, HEADS * LENGTH),
            "attn_k": (WIDTH, SHARED * LENGTH),
            "attn_v": (WIDTH, SHARED * LENGTH),
            "attn_output": (HEADS * LENGTH, WIDTH),
            "attn_q_norm": (LENGTH,),
            "attn_k_norm": (LENGTH,),
            "post_attention_norm": (WIDTH,),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (WIDTH, INNER),
            "ffn_up": (WIDTH, INNER),
            "ffn_down": (INNER, WIDTH),
            "post_ffw_norm": (WIDTH,),
        }
        for name, shape in shapes.items():
            yield f"blk.{layer}.{name}.weight", shape
