"""Asks an engine's own parser what it makes of the planned command lines, and judges the answer."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.contracts.engine import EngineId, LaunchRequest
from supervisor.engines import exllamav3, mlx, sglang, vllm
from supervisor.engines import llamacpp as llama
from supervisor.engines.plan import Rows
from supervisor.engines.spelling import Spelling, find
from tests.engines import golden
from tests.engines.requests import spec_of

ROWS: dict[EngineId, Rows] = {
    "vllm": vllm.ROWS,
    "sglang": sglang.ROWS,
    "llamacpp": llama.ROWS,
    "mlx": mlx.ROWS,
    "exllamav3": exllamav3.ROWS,
}
READERS = Path(__file__).parent / "readers"
LONG_S = 600.0
"""vLLM's imports alone can take minutes on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """An engine's parser on this machine."""

    engine: EngineId
    python: Path
    arguments: tuple[str, ...] = ()
    pythonpath: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What it made of all of the engine's golden plans."""

    version: str
    flags: frozenset[str]
    """All that it knows; empty where it cannot list them."""
    read: dict[str, dict[str, Any]]
    """By the golden file's name."""


def words_of(path: Path) -> list[str]:
    """The planned words of a golden plan that reach the engine's parser."""
    return reaching(golden.launch_of(path))


def reaching(launch: LaunchRequest) -> list[str]:
    """The planned words that reach the engine's parser: without the program and what runs it."""
    argv = list(spec_of(launch).plan(launch).argv)
    if launch.engine == "vllm":  # its parser is the whole command's
        return argv[argv.index("serve") :] if launch.runtime == "process" else ["serve", *argv]
    first = next(place for place, word in enumerate(argv) if word in _FIRST[launch.engine])
    return argv[first:]


_FIRST: dict[EngineId, tuple[str, ...]] = {
    "sglang": ("--model-path", "--host"),
    "mlx": ("--model", "--host"),
    "exllamav3": ("--model-dir", "--model-name", "--host"),
    "llamacpp": ("-m", "--host"),
}
"""What our own words begin with, model or not."""


def ask(parser: Parser) -> Told:
    """Let it read every golden plan of its engine, in one process."""
    paths = golden.cases(parser.engine)
    told = hear(parser, [words_of(path) for path in paths])
    return Told(
        version=told["version"],
        flags=frozenset(told["flags"]),
        read={path.stem: one for path, one in zip(paths, told["read"], strict=True)},
    )


def hear(parser: Parser, lists: list[list[str]]) -> dict[str, Any]:
    """Let it read any lists of words, in one process."""
    name = "tabbyapi" if parser.engine == "exllamav3" else parser.engine
    env = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        **{"PYTHONPATH": parser.pythonpath, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
    }
    done = subprocess.run(
        [parser.python, READERS / f"read_{name}.py", *parser.arguments],
        input=json.dumps(lists),
        capture_output=True,
        text=True,
        env=env,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # What C prints (the buffer types there are, after a wrong one) comes out behind it.
    told: dict[str, Any] = json.JSONDecoder().raw_decode(done.stdout)[0]
    return told


def misread(path: Path, told: Told) -> str | None:
    """What is wrong with what the parser made of a golden plan; ``None``: all landed as meant."""
    one = told.read[path.stem]
    if "error" in one:
        return f"refused: {one['error']}"
    lands = golden.lands(path)
    values = one["values"]
    wrong = {name: values.get(name) for name in lands if values.get(name) != lands[name]}
    if wrong:
        return f"landed as {wrong}, meant were { ({name: lands[name] for name in wrong}) }"
    if strays := set(one["changed"]) - lands.keys():
        return f"changed besides: { ({name: values[name] for name in sorted(strays)}) }"
    return None


def strange_flags(engine: EngineId, told: Told) -> list[str]:
    """Spellings of our tables that the engine does not know, and flags of its own that we would
    take for one of ours."""
    spelling = ROWS[engine].spelling
    if not told.flags:
        return []
    said = (*spelling.index, *sorted(spelling.harmless.words))
    unknown = [f"no flag {word}" for word in said if word not in told.flags]
    foreign = told.flags - spelling.index.keys()
    taken = [f"{word} would count as ours" for word in foreign if find(spelling, word)]
    return unknown + taken + [f"{word} is read otherwise" for word in _misread(spelling, told)]


def _misread(spelling: Spelling, told: Told) -> Iterator[str]:
    """Beginnings of our flags that the engine takes for a flag, and we for another or for none."""
    words = {word[:end] for word in spelling.index for end in range(2, len(word))} - {"--"}
    for word in sorted(words - told.flags):
        meant = [flag for flag in told.flags if flag.startswith(word)]
        if len(meant) == 1 and find(spelling, word) is not find(spelling, meant[0]):
            yield word
