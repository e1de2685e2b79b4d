"""A tiny llama model with random weights, as a GGUF file: loads at once, answers nonsense.

Most tests need an engine that loads, serves and stops, and do not care what it says. This writes
the file with nothing but the standard library, byte for byte the same each time.

The layout (GGUF version 3, little-endian): a header, the metadata as typed key-value pairs, one
description per tensor, then the tensors' data, each at a multiple of 32 bytes.
"""

from __future__ import annotations

import random
import struct
import sys
from array import array
from collections.abc import Mapping
from pathlib import Path

ALIGNMENT = 32
EMBEDDING, HEADS, LAYERS, FEED_FORWARD, CONTEXT = 64, 4, 2, 128, 4096

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)

# Value types of GGUF, and the kinds of token that llama.cpp tells apart.
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
F32_TENSOR = 0


def model() -> bytes:
    """The whole file."""
    metadata = _metadata()
    tensors = _tensors()
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(_string(key) + value for key, value in metadata.items())

    data = bytearray()
    for name, (shape, values) in tensors.items():
        head += _string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", F32_TENSOR, len(data))
        data += _padded(_little_endian(values))
    return _padded(head) + bytes(data)


def _metadata() -> dict[str, bytes]:
    """What the file says about the model: its shape, and a vocabulary of single bytes."""
    tokens, kinds, scores = _vocabulary()
    return {
        "general.architecture": _text("llama"),
        "general.name": _text("tiny-random-llama"),
        "general.file_type": _number(0),
        "llama.context_length": _number(CONTEXT),
        "llama.embedding_length": _number(EMBEDDING),
        "llama.block_count": _number(LAYERS),
        "llama.feed_forward_length": _number(FEED_FORWARD),
        "llama.attention.head_count": _number(HEADS),
        "llama.attention.head_count_kv": _number(HEADS),
        "llama.attention.layer_norm_rms_epsilon": struct.pack("<If", FLOAT32, 1e-5),
        "llama.rope.dimension_count": _number(EMBEDDING // HEADS),
        "llama.vocab_size": _number(len(tokens)),
        "tokenizer.ggml.model": _text("llama"),
        "tokenizer.ggml.pre": _text("default"),
        "tokenizer.ggml.tokens": _array(STRING, [_string(token) for token in tokens]),
        "tokenizer.ggml.scores": _array(FLOAT32, [struct.pack("<f", score) for score in scores]),
        "tokenizer.ggml.token_type": _array(INT32, [struct.pack("<i", kind) for kind in kinds]),
        "tokenizer.ggml.bos_token_id": _number(1),
        "tokenizer.ggml.eos_token_id": _number(2),
        "tokenizer.ggml.unknown_token_id": _number(0),
        "tokenizer.ggml.add_bos_token": struct.pack("<I?", BOOL, True),
        "tokenizer.ggml.add_eos_token": struct.pack("<I?", BOOL, False),
        "tokenizer.chat_template": _text(CHAT_TEMPLATE),
    }


def _vocabulary() -> tuple[list[str], list[int], list[float]]:
    """Tokens, their kinds and scores: any text can be spelt, if only byte by byte."""
    special = ["<unk>", "<s>", "</s>"]
    every_byte = [f"<0x{value:02X}>" for value in range(256)]
    printable = ["\N{LOWER ONE EIGHTH BLOCK}", *map(chr, range(ord("!"), ord("~") + 1))]
    tokens = special + every_byte + printable
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(printable)
    scores = [0.0] * (len(tokens) - len(printable)) + [-float(i) for i in range(len(printable))]
    return tokens, kinds, scores


def _tensors() -> Mapping[str, tuple[tuple[int, ...], array[float]]]:
    """Each tensor's shape, fastest dimension first, and its weights."""
    chance = random.Random(0)
    words = len(_vocabulary()[0])

    def weights(*shape: int) -> tuple[tuple[int, ...], array[float]]:
        size = shape[0] * shape[1]
        return shape, array("f", ((chance.random() - 0.5) / 6 for _ in range(size)))

    ones = (EMBEDDING,), array("f", [1.0] * EMBEDDING)
    tensors = {
        "token_embd.weight": weights(EMBEDDING, words),
        "output_norm.weight": ones,
        "output.weight": weights(EMBEDDING, words),
    }
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        tensors[f"{block}.attn_norm.weight"] = ones
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors[f"{block}.{part}.weight"] = weights(EMBEDDING, EMBEDDING)
        tensors[f"{block}.ffn_norm.weight"] = ones
        tensors[f"{block}.ffn_gate.weight"] = weights(EMBEDDING, FEED_FORWARD)
        tensors[f"{block}.ffn_up.weight"] = weights(EMBEDDING, FEED_FORWARD)
        tensors[f"{block}.ffn_down.weight"] = weights(FEED_FORWARD, EMBEDDING)
    return tensors


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _text(text: str) -> bytes:
    return struct.pack("<I", STRING) + _string(text)


def _number(value: int) -> bytes:
    return struct.pack("<II", UINT32, value)


def _array(kind: int, items: list[bytes]) -> bytes:
    return struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(items)


def _little_endian(values: array[float]) -> bytes:
    if sys.byteorder == "big":
        values = array("f", values)
        values.byteswap()
    return values.tobytes()


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % ALIGNMENT)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(model())
