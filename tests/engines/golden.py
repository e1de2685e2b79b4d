"""Golden files of plans: each holds what is given and what comes of it, for a person to review.

``given`` is a launch request as changes to the engine's ordinary one (``requests.py``), in the
wire's words, and ``lands`` is what the engine's own parser must make of the planned command line,
in the parser's words. Both are written by hand: here in the file, or in ``matrix.py`` for the
files whose names begin as its cases do. All else is rewritten by a run with ``UPDATE_GOLDEN=1``.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from supervisor.contracts.engine import ENGINE_IDS, ComputeEngineSpec, EngineId, LaunchRequest
from supervisor.engines.devices import apply_devices
from supervisor.engines.registry import ENGINES
from tests.engines.matrix import PREFIXES, matrix
from tests.engines.requests import ACCELERATORS, ACCESS, request
from tests.engines.sheets import SHEETS

MATRIX = matrix(SHEETS)
GOLDEN = Path(__file__).parents[2] / "golden" / "engines"


def cases(*engines: EngineId) -> list[Path]:
    """The files of these engines, or of all."""
    folders = (GOLDEN / engine for engine in engines or ENGINE_IDS)
    return [path for folder in folders for path in sorted(folder.glob("*.json"))]


def name_of(path: Path) -> str:
    """As tests are called: ``vllm-knob-dtype``."""
    return f"{path.parent.name}-{path.stem}"


def engine_of(path: Path) -> EngineId:
    return next(engine for engine in ENGINE_IDS if engine == path.parent.name)


def given(path: Path) -> dict[str, Any]:
    """The changes that a golden file makes to the ordinary request."""
    content: dict[str, Any] = json.loads(path.read_text())["given"]
    return content


def lands(path: Path) -> dict[str, Any]:
    """What the engine's own parser must find, beside its defaults."""
    content: dict[str, Any] = json.loads(path.read_text())["lands"]
    return content


def launch_of(path: Path) -> LaunchRequest:
    return request(**{"engine": engine_of(path), **given(path)})


def outcome(spec: ComputeEngineSpec, launch: LaunchRequest) -> dict[str, Any]:
    """What a launch would run, devices applied, and what was given up."""
    notes = spec.explain(launch)
    plan = msgspec.to_builtins(apply_devices(spec.plan(launch), ACCELERATORS, ACCESS))
    if plan["health"] == msgspec.to_builtins(spec.health):
        del plan["health"]  # the same in every file
    return {"plan": plan, "dropped": list(notes.dropped), "notes": list(notes.notes)}


def check(path: Path) -> None:
    text = render(matrix_part(path) | outcome(ENGINES[engine_of(path)], launch_of(path)))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text, "review the change, then: make golden"


def write_matrix() -> None:
    """A file for each case of the matrix that has none or an older one; those without a case go."""
    for engine, wanted in MATRIX.items():
        folder = GOLDEN / engine
        folder.mkdir(exist_ok=True)
        for path in folder.glob("*.json"):
            if path.name.startswith(PREFIXES) and path.stem not in wanted:
                path.unlink()
        for name, case in wanted.items():
            path = folder / f"{name}.json"
            if not path.exists() or matrix_part(path) != case:
                path.write_text(render(case | {"plan": {}, "dropped": [], "notes": []}))


def matrix_part(path: Path) -> dict[str, Any]:
    """What of a file is written by hand."""
    content: dict[str, Any] = json.loads(path.read_text())
    return {key: content[key] for key in ("given", "lands") if key in content}


def render(content: Mapping[str, Any]) -> str:
    """JSON with one line for each thing that one would compare at a glance."""
    lines = []
    for key, value in content.items():
        match value:
            case dict():
                inner = [f"    {_line(name)}: {_line(item)}" for name, item in value.items()]
                brackets = "{}"
            case _:
                inner = [f"    {_line(item)}" for item in value]
                brackets = "[]"
        body = "\n" + ",\n".join(inner) + "\n  " if inner else ""
        lines.append(f"  {_line(key)}: {brackets[0]}{body}{brackets[1]}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
