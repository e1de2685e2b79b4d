"""The facts of a model on disk: one question, and an answer whatever lies there.

The readers are imported with the first model: the daemon's start needs none of them.
"""

import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from supervisor.contracts.model import ModelFacts, Unreadable
from supervisor.models.reading import BadFile
from supervisor.models.split import split_of

if TYPE_CHECKING:
    from supervisor.models.gguf import Gguf

REMEMBERED = 64
Stamp = tuple[int, int, int, int]


def model_facts(path: str) -> ModelFacts | Unreadable:
    """What the model at ``path`` says of itself: a ``.gguf`` file, or a directory of Hugging Face.

    Never raises and reads a bounded amount; it can hang only where the file system does.
    """
    try:
        if os.path.isdir(path):
            from supervisor.models import hf_shape

            return hf_shape.shape(path)
        return _of_gguf(path)
    except BadFile as bad:
        return Unreadable(f"{path} {bad}")
    except (OSError, ValueError, OverflowError) as error:
        return Unreadable(f"{path} cannot be read: {error}")


def is_projector(path: str) -> bool:
    """Whether the GGUF file is a projector; no for what cannot be read. Looks at its beginning."""
    from supervisor.models import llama_shape
    from supervisor.models.gguf import beginning

    try:
        return llama_shape.is_projector(beginning(path))
    except BadFile:
        return False


def _of_gguf(path: str) -> ModelFacts:
    from supervisor.models import llama_shape

    split = split_of(path)
    paths = (path,) if split is None else split.paths
    files = [_part(one, path) for one in paths]
    return llama_shape.shape(files[0], sum(file.tensor_bytes for file in files), paths)


def _part(part: str, path: str) -> "Gguf":
    from supervisor.models.gguf import read_gguf

    try:
        file = read_gguf(part)
        if file.missing_bytes:
            raise BadFile(f"is not whole: it lacks its last {file.missing_bytes} bytes")
    except BadFile as bad:
        raise bad if part == path else BadFile(f"has another part, {part}, which {bad}") from None
    return file


class Library:
    """Remembers the facts of models that have not changed, for those of a large vocabulary take
    a tenth of a second to read. Used from several threads: each step is one dictionary operation.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Stamp, ModelFacts]] = OrderedDict()

    def facts(self, path: str) -> ModelFacts | Unreadable:
        """As ``model_facts``."""
        stamp = _stamp(path)
        known = self._known.get(path)
        if stamp is not None and known is not None and known[0] == stamp:
            return known[1]
        found = model_facts(path)
        if stamp is not None and isinstance(found, ModelFacts) and found.format == "gguf":
            self._known[path] = stamp, found
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return found


def _stamp(path: str) -> Stamp | None:
    try:
        its = os.stat(path)
    except (OSError, ValueError):
        return None
    return its.st_dev, its.st_ino, its.st_size, its.st_mtime_ns
