"""How large the weights of a Hugging Face directory are, by the headers of its files.

A safetensors file is the length of its header, the header (JSON), and the tensors behind it, whose
places the header gives (https://huggingface.co/docs/safetensors).
"""

import os
import struct
from collections.abc import Iterable

import msgspec

from supervisor.models.reading import BadFile, reading, whole

MAX_HEADER = 100_000_000
"""The library's own limit."""
MAX_INDEX = 64 << 20
MAX_FILES = 10_000
INDEX = "model.safetensors.index.json"
_LENGTH = struct.Struct("<Q")


class _Tensor(msgspec.Struct, frozen=True):
    data_offsets: tuple[int, int] | None = None


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


def weights_of(folder: str) -> tuple[int, tuple[str, ...]]:
    """Bytes of all tensors, and the files that they are in. Raises ``BadFile``."""
    names = _listed(folder)
    if INDEX in names:
        parts = _indexed(folder)
        if lacking := sorted(set(parts) - names):
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            raise BadFile(f"lacks {lacking[0]}{more}, which {INDEX} names")
    else:
        parts = sorted(name for name in names if name.endswith(".safetensors"))
        # Mistral's own copy of the same weights lies beside Hugging Face's.
        parts = [name for name in parts if not name.startswith("consolidated")] or parts
    if parts:
        return sum(tensors_of(os.path.join(folder, name)) for name in parts), tuple(parts)
    pickled = sorted(
        name for name in names if name.endswith((".bin", ".pt", ".pth")) and "training" not in name
    )
    if not pickled:
        raise BadFile("holds no weights: no .safetensors and no .bin file")
    return sum(os.stat(os.path.join(folder, name)).st_size for name in pickled), tuple(pickled)


def tensors_of(path: str) -> int:
    """Bytes of the tensors of one file. Raises ``BadFile``, for a file that lacks its end too."""
    name = os.path.basename(path)
    with reading(path, MAX_HEADER + (1 << 20)) as reader:
        if reader.size < _LENGTH.size:
            raise BadFile(f"{name} is too short to be a safetensors file")
        start = reader.take(_LENGTH.size)
        if start == b"version ":
            raise BadFile(f"{name} is a pointer of Git LFS, and not the weights: git lfs pull")
        length = _LENGTH.unpack(start)[0]
        if length > min(MAX_HEADER, reader.left):
            raise BadFile(f"{name} claims a header of {length} bytes")
        ends = _ends(name, reader.take(length))
        if ends > reader.left:
            raise BadFile(f"{name} lacks its last {ends - reader.left} bytes")
        return ends


def _ends(name: str, header: bytes) -> int:
    try:
        tensors = msgspec.json.decode(header, type=dict[str, _Tensor])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadFile(f"{name} has no sensible header: {error}") from None
    offsets = (tensor.data_offsets for tensor in tensors.values() if tensor.data_offsets)
    return max((max(0, end) for _, end in offsets), default=0)


def _indexed(folder: str) -> list[str]:
    try:
        index = msgspec.json.decode(whole(os.path.join(folder, INDEX), MAX_INDEX), type=_Index)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadFile(f"{INDEX} makes no sense: {error}") from None
    parts = sorted(set(index.weight_map.values()))
    if len(parts) > MAX_FILES or any(os.path.basename(part) != part for part in parts):
        raise BadFile(f"{INDEX} names files outside of its folder, or too many")
    return parts


def _listed(folder: str) -> set[str]:
    names: set[str] = set()
    try:
        with os.scandir(folder) as entries:
            names.update(_first(entry.name for entry in entries))
    except OSError as error:
        raise BadFile(f"cannot be listed: {error.strerror}") from None
    return names


def _first(names: Iterable[str]) -> list[str]:
    return [name for _, name in zip(range(MAX_FILES), names, strict=False)]
