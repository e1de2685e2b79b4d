"""A tiny model with a window in five of six layers, which a real llama-server loads: Gemma 3's
layout, with weights of zero."""

from collections.abc import Iterator
from pathlib import Path

from tests.models.ggufs import F32, Made
from tests.parts.tiny_gguf import _metadata

WIDTH, HEADS, SHARED, LENGTH, INNER, LAYERS = 64, 4, 2, 32, 128, 12
WINDOW = 512
WORDS = 354


def write(path: Path) -> Path:
    """The model as a file."""
    metadata: dict[str, object] = {
        key: value for key, value in _metadata().items() if key.startswith("tokenizer.")
    }
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
    tensors, offset = [], 0
    for name, shape in _shapes():
        tensors.append((name, shape, F32, offset))
        offset += 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    return Made(metadata=metadata, tensors=tensors, data=bytes(offset)).write(path)


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
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
