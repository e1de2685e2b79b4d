"""GGUF files with any header a test wants, in any version and byte order."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

UINT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 6, 7, 8, 9, 10
F32, Q4_K = 0, 12


@dataclass(frozen=True, kw_only=True)
class Made:
    """A file in the making. A key's value decides its type; a tuple becomes a list."""

    metadata: Mapping[str, object] = field(default_factory=dict)
    tensors: Sequence[tuple[str, tuple[int, ...], int, int]] = ()
    """Name, shape, type, offset."""
    data: bytes = b""
    version: int = 3
    mark: str = "<"
    """The byte order, as struct has it."""

    def content(self) -> bytes:
        head = b"GGUF" + self._pack("I", self.version)
        head += self._count(len(self.tensors)) + self._count(len(self.metadata))
        for key, value in self.metadata.items():
            head += self._text(key) + self._value(value)
        for name, shape, kind, offset in self.tensors:
            head += self._text(name) + self._pack("I", len(shape))
            head += b"".join(self._count(length) for length in shape)
            head += self._pack("I", kind) + self._pack("Q", offset)
        return head + b"\0" * (-len(head) % 32) + self.data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.content())
        return path

    def _pack(self, code: str, value: object) -> bytes:
        return struct.pack(self.mark + code, value)

    def _count(self, value: int) -> bytes:
        return self._pack("I" if self.version == 1 else "Q", value)

    def _text(self, text: str) -> bytes:
        return self._count(len(text.encode())) + text.encode()

    def _value(self, value: object) -> bytes:
        match value:
            case bool():
                return self._pack("I", BOOL) + self._pack("?", value)
            case int():
                return self._pack("I", UINT32) + self._pack("I", value)
            case float():
                return self._pack("I", FLOAT32) + self._pack("f", value)
            case str():
                return self._pack("I", STRING) + self._text(value)
            case bytes():  # raw: the type and what follows it
                return value
            case tuple():
                kinds = {bool: (BOOL, "?"), int: (UINT32, "I"), float: (FLOAT32, "f")}
                head = self._pack("I", ARRAY)
                if all(isinstance(one, str) for one in value):
                    items = b"".join(self._text(one) for one in value)
                    return head + self._pack("I", STRING) + self._count(len(value)) + items
                kind, code = kinds[type(value[0])]
                items = b"".join(self._pack(code, one) for one in value)
                return head + self._pack("I", kind) + self._count(len(value)) + items
        raise NotImplementedError(value)


def llama(**more: object) -> dict[str, object]:
    """Metadata of a small llama with shared heads; ``more`` replaces keys, dots written as _ _."""
    return {
        "general.architecture": "llama",
        "llama.block_count": 4,
        "llama.context_length": 4096,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 128,
        "llama.attention.head_count": 8,
        "llama.attention.head_count_kv": 2,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
