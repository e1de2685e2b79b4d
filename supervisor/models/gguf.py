"""The header of a GGUF file: its metadata, and how large its tensors are.

Versions 1 to 3, both byte orders (ggml's ``docs/gguf.md``). Counts and lengths in it are claims:
each is checked against what the file can hold before anything is done with it, long lists are
passed over, and of short ones only numbers are kept.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.models.ggml import tensor_bytes
from supervisor.models.reading import BadFile, Reader, reading

BUDGET = 256 << 20
"""Bytes of one header; the largest vocabularies take some ten million."""
BEGINNING = 1 << 20
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_ITEMS = 8 << 20
"""Texts in all lists together."""
KEPT_ITEMS = 4096
"""A list of numbers no longer than this is kept: one a layer."""
LONGEST_NAME = 64 << 10
LONGEST_TEXT = 4096
"""Of a text that is kept; what is longer is a template or a licence."""

STRING, ARRAY = 8, 9
_NUMBERS: Mapping[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}

Value = int | float | bool | str | tuple[int | float | bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gguf:
    """One file of a model."""

    version: int
    big_endian: bool
    metadata: Mapping[str, Value]
    tensors: int
    tensor_bytes: int
    missing_bytes: int
    """By which the file is shorter than its tensors."""

    def number(self, key: str) -> int | None:
        """A whole number that is not negative."""
        value = self.metadata.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            return None
        return value

    def text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class _Order:
    """How this file writes numbers; version 1 had counts of 32 bits."""

    mark: str
    version: int

    def form(self, code: str) -> struct.Struct:
        return struct.Struct(self.mark + code)

    @property
    def count(self) -> struct.Struct:
        return self.form("I" if self.version == 1 else "Q")


def read_gguf(path: str) -> Gguf:
    """Raises ``BadFile``."""
    with reading(path, BUDGET) as reader:
        try:
            return _read(reader)
        except struct.error as error:
            raise BadFile(f"its header makes no sense: {error}") from None


def beginning(path: str) -> dict[str, Value]:
    """The metadata that comes first, up to the vocabulary: enough to tell what kind of file it is,
    and read at once. Raises ``BadFile``."""
    with reading(path, BEGINNING) as reader:
        try:
            order, _, keys = _counts(reader)
            return _metadata(reader, order, keys, stop="tokenizer.")
        except struct.error as error:
            raise BadFile(f"its header makes no sense: {error}") from None


def _read(reader: Reader) -> Gguf:
    order, tensors, keys = _counts(reader)
    metadata = _metadata(reader, order, keys)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise BadFile(f"has an alignment of {alignment!r}")
    ends = _tensor_ends(reader, order, tensors)
    begin = -(-reader.position // alignment) * alignment
    there = max(0, reader.size - begin)
    last = max((offset + (size or 0) for offset, size in ends), default=0)
    return Gguf(
        version=order.version,
        big_endian=order.mark == ">",
        metadata=metadata,
        tensors=tensors,
        tensor_bytes=_sum(ends, there),
        missing_bytes=max(0, last - there),
    )


def _counts(reader: Reader) -> tuple[_Order, int, int]:
    """The byte order and version, how many tensors there are, and how many keys."""
    if reader.size < 24 or reader.take(4) != b"GGUF":
        raise BadFile("is no GGUF file: it does not begin with GGUF")
    order = _order(reader.take(4))
    tensors, keys = (int(reader.unpack(order.count)) for _ in range(2))
    if keys > MAX_KEYS or tensors > MAX_TENSORS:
        raise BadFile(f"claims {keys} keys and {tensors} tensors, more than any model has")
    return order, tensors, keys


def _order(field: bytes) -> _Order:
    for mark in "<>":
        version = struct.unpack(mark + "I", field)[0]
        if 1 <= version <= 3:
            return _Order(mark, version)
    raise BadFile(f"is a GGUF file of version {struct.unpack('<I', field)[0]}; 1 to 3 are known")


def _metadata(
    reader: Reader, order: _Order, keys: int, stop: str | None = None
) -> dict[str, Value]:
    """All of it, or what comes before the first key that begins with ``stop``."""
    found: dict[str, Value] = {}
    kind_of, numbers = order.form("I"), {k: order.form(c) for k, c in _NUMBERS.items()}
    items = 0
    for _ in range(keys):
        key = _text(reader, order, LONGEST_NAME)
        if stop is not None and key.startswith(stop):
            break
        kind = int(reader.unpack(kind_of))
        if kind in numbers:
            found[key] = reader.unpack(numbers[kind])
        elif kind == STRING:
            length = int(reader.unpack(order.count))
            if length > LONGEST_TEXT:
                reader.skip(length)
            else:
                found[key] = reader.take(length).decode(errors="replace")
        elif kind == ARRAY:
            inner, count = int(reader.unpack(kind_of)), int(reader.unpack(order.count))
            if inner in numbers:
                form = numbers[inner]
                if count <= KEPT_ITEMS:
                    raw = reader.take(count * form.size)
                    found[key] = tuple(one[0] for one in form.iter_unpack(raw))
                else:
                    reader.skip(count * form.size)
            elif inner == STRING:
                items += count
                if items > MAX_ITEMS or count * order.count.size > reader.left:
                    raise BadFile(f"claims a list of {count} texts")
                reader.skip_strings(count, order.count)
            else:
                raise BadFile(f"has a list of values of type {inner}")
        else:
            raise BadFile(f"has a value of type {kind}, which GGUF does not know")
    return found


def _tensor_ends(reader: Reader, order: _Order, tensors: int) -> list[tuple[int, int | None]]:
    """Offset and size of each; no size for a type that is not known here."""
    found = []
    dimensions_of, kind_of, offset_of = order.form("I"), order.form("I"), order.form("Q")
    for _ in range(tensors):
        _text(reader, order, LONGEST_NAME)
        dimensions = int(reader.unpack(dimensions_of))
        if dimensions > 8:
            raise BadFile(f"has a tensor of {dimensions} dimensions")
        shape = tuple(int(reader.unpack(order.count)) for _ in range(dimensions))
        kind, offset = int(reader.unpack(kind_of)), int(reader.unpack(offset_of))
        found.append((offset, tensor_bytes(kind, shape)))
    return sorted(found, key=lambda end: end[0])


def _sum(ends: list[tuple[int, int | None]], there: int) -> int:
    """All sizes; one that is not known reaches to where the next tensor begins."""
    total = 0
    for place, (offset, size) in enumerate(ends):
        following = ends[place + 1][0] if place + 1 < len(ends) else there
        total += max(0, following - offset) if size is None else size
    return total


def _text(reader: Reader, order: _Order, longest: int) -> str:
    length = int(reader.unpack(order.count))
    if length > longest:
        raise BadFile(f"has a name of {length} bytes")
    return reader.take(length).decode(errors="replace")
