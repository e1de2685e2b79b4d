"""What a launch may say about an engine without being trusted: an allow-list, as data.

An engine runs as the daemon's user. Some of its flags load code, write files or read any file, and
every release adds some; so a list of those would never be complete, and what is listed here is what
is known to do none of it. Names count as they are written: a beginning of a flag, which argparse
would take for the flag, counts as unknown. Pure.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from supervisor.engines.devices import DEVICE_VARIABLES
from supervisor.engines.secrets import mask_argv
from supervisor.engines.spelling import MANY, Grammar, Says, Spelling, names
from supervisor.engines.words import dashed, flag_word

_NUMBER = re.compile(r"-[0-9.][0-9.,eE+-]*")
"""The one kind of value that begins with a dash."""

HARMLESS_ENV: frozenset[str] = DEVICE_VARIABLES | names(
    """
    CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING DO_NOT_TRACK
    GGML_CUDA_ENABLE_UNIFIED_MEMORY HF_HUB_DISABLE_TELEMETRY HF_HUB_OFFLINE HF_TOKEN
    HUGGING_FACE_HUB_TOKEN LLAMA_API_KEY MKL_NUM_THREADS NCCL_CUMEM_ENABLE NCCL_DEBUG
    NCCL_IB_DISABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_SHM_DISABLE NO_COLOR OMP_NUM_THREADS
    OPENBLAS_NUM_THREADS PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF TOKENIZERS_PARALLELISM
    TRANSFORMERS_OFFLINE VLLM_API_KEY VLLM_CPU_KVCACHE_SPACE VLLM_DO_NOT_TRACK
    VLLM_LOGGING_LEVEL VLLM_NO_USAGE_STATS
    """
)
"""Variables that choose neither code nor files. Those of the devices are held inside the lease."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Extra arguments, as the bounds of who gave them see them."""

    beyond: str | None
    """The first thing that takes more trust, in words; ``None``: there is none."""
    files: tuple[tuple[int, int], ...] = ()
    """The paths of files to be read: a word's position, and where in the word the path starts."""


def judge(
    spelling: Spelling, args: Sequence[str], listed: Collection[str] = (), *, trusting: bool = False
) -> Judged:
    """Whether every word of ``args`` is a harmless flag of the engine or the value of one.

    ``listed`` are further flags that may be said, with whatever follows them. ``trusting``: the
    launch asks for the model's own code to be run, which counts as the engine's flag for that.
    """
    grammar = spelling.grammar
    trusted = {_spelled(grammar, name) for name in listed}
    takes = _takes(spelling, trusted)
    trust = spelling.knobs["trust_remote_code"]
    if trusting and isinstance(trust, Says) and trust.words[0].flag.names[0] not in takes:
        return Judged(trust.words[0].flag.names[0])
    files: list[tuple[int, int]] = []
    position = 0
    while position < len(args):
        word, flag = args[position], flag_word(args[position])
        if flag is None or (flag.separator and flag.separator != "="):
            return Judged(f"the word {mask_argv((word,))[0][:80]!r}")
        name = _spelled(grammar, flag.name)
        if name not in takes:
            return Judged(flag.name[:80])
        most, position = takes[name], position + 1
        if flag.value is not None:
            values = [(position - 1, len(flag.name) + 1)]
        else:
            found = list(_values(args, position, most))
            values, position = [(at, 0) for at in found], position + len(found)
        if not most and values:
            return Judged(f"a value for {name}, which takes none")
        if most == 1 and not values:
            return Judged(f"{name} without a value")
        if name in spelling.harmless.files and name not in trusted:
            files += values
    return Judged(None, tuple(files))


def _takes(spelling: Spelling, trusted: Collection[str]) -> Mapping[str, int]:
    """How many values each flag takes that may be said."""
    own: dict[str, int] = {}
    rows = [row for knob, row in spelling.knobs.items() if knob != "trust_remote_code"]
    for row in (spelling.name, *rows):
        for word in (*row.words, *row.companions) if isinstance(row, Says) else ():
            own |= dict.fromkeys(word.flag.names, word.flag.takes)
            own |= dict.fromkeys(word.flag.negations, 0)
    for flag in (spelling.port, *spelling.switches):
        own |= dict.fromkeys(flag.names, flag.takes)
    harmless = spelling.harmless
    return (
        dict.fromkeys(trusted, MANY)
        | own
        | dict.fromkeys(harmless.switches, 0)
        | dict.fromkeys(harmless.values | harmless.files, 1)
        | dict.fromkeys(harmless.lists, MANY)
    )


def _values(args: Sequence[str], start: int, most: int) -> Iterator[int]:
    """The positions of the words that a flag before ``start`` takes."""
    end = len(args) if most == MANY else min(len(args), start + most)
    for position in range(start, end):
        if args[position].startswith("-") and not _NUMBER.fullmatch(args[position]):
            return
        yield position


def _spelled(grammar: Grammar, name: str) -> str:
    return dashed(name) if grammar.underscores else name
