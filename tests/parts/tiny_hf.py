"""A tiny llama model with random weights, as a folder in Hugging Face's form: answers nonsense.

For engines that take such a folder (vLLM, SGLang, mlx-lm). Written with nothing but the standard
library, the same each time: a safetensors file is a length, a JSON head and the tensors' bytes;
the tokenizer knows the 256 bytes and three special tokens.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from array import array
from pathlib import Path
from typing import Any

HIDDEN, HEADS, LAYERS, FEED_FORWARD, CONTEXT = 128, 4, 2, 256, 2048
SPECIAL = ("<unk>", "<s>", "</s>")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def write(folder: Path) -> None:
    """Make the model's files in a folder that is there."""
    for name, content in _documents().items():
        (folder / name).write_text(json.dumps(content))
    (folder / "model.safetensors").write_bytes(weights())


def _documents() -> dict[str, Any]:
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "intermediate_size": FEED_FORWARD,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS,
            "head_dim": HIDDEN // HEADS,
            "vocab_size": len(_vocabulary()),
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": "float32",
            "attention_bias": False,
            "mlp_bias": False,
        },
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "model_max_length": CONTEXT,
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
        },
        "tokenizer.json": _tokenizer(),
    }


def _tokenizer() -> dict[str, Any]:
    """A byte-level BPE without merges, as the library `tokenizers` writes it."""
    switches = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    bytes_as_they_are = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, "special": True, **switches}
            for number, token in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": bytes_as_they_are,
        "post_processor": None,
        "decoder": bytes_as_they_are,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: number for number, token in enumerate(_vocabulary())},
            "merges": [],
        },
    }


def _vocabulary() -> tuple[str, ...]:
    """The special tokens, and one visible character for each byte, as GPT-2 chose them."""
    plain = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (chr(0x100 + place) for place in range(256))
    return (*SPECIAL, *(chr(byte) if byte in plain else next(hidden) for byte in range(256)))


def weights() -> bytes:
    """The safetensors file: every matrix random, every norm 1."""
    vocabulary = len(_vocabulary())
    shapes = {"model.embed_tokens.weight": (vocabulary, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}"
        shapes |= {f"{stem}.{norm}layernorm.weight": (HIDDEN,) for norm in _NORMS}
        shapes |= {f"{stem}.self_attn.{it}_proj.weight": (HIDDEN, HIDDEN) for it in "qkvo"}
        shapes |= {f"{stem}.mlp.{it}_proj.weight": (FEED_FORWARD, HIDDEN) for it in ("gate", "up")}
        shapes[f"{stem}.mlp.down_proj.weight"] = (HIDDEN, FEED_FORWARD)
    shapes["lm_head.weight"] = (vocabulary, HIDDEN)

    chance = random.Random(0)
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        norm = len(shape) == 1
        values = array("f", (1.0 if norm else chance.uniform(-0.1, 0.1) for _ in range(count)))
        if sys.byteorder == "big":
            values.byteswap()
        start = len(data)
        data += values.tobytes()
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    encoded = json.dumps(head).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + bytes(data)


_NORMS = ("input_", "post_attention_")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write(target)
