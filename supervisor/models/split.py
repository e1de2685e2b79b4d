"""A GGUF model in several files, as llama.cpp's gguf-split makes: ``NAME-00001-of-00003.gguf``.

Names are taken as they are given: in a download cache they are links, and what those lead to is
named after its content.
"""

import re
from dataclasses import dataclass

_SHARD = re.compile(r"(?s)(.*)-([0-9]{5})-of-([0-9]{5})\.gguf")
MAX_SHARDS = 1000


@dataclass(frozen=True, slots=True)
class Split:
    """All files of one split model, the first one first."""

    paths: tuple[str, ...]

    @property
    def first(self) -> str:
        """The one that llama.cpp wants to be given; it finds the others by their names."""
        return self.paths[0]


def split_of(path: str) -> Split | None:
    """The split that ``path`` belongs to by its name; ``None`` for a model of one file."""
    match = _SHARD.fullmatch(path)
    if match is None:
        return None
    stem, number, count = match[1], int(match[2]), int(match[3])
    if not 1 <= number <= count <= MAX_SHARDS:
        return None
    return Split(tuple(f"{stem}-{n:05}-of-{count:05}.gguf" for n in range(1, count + 1)))
