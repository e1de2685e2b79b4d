"""Golden files of plans: each holds what is given and what comes of it, for a person to review.

``given`` is written by hand, as changes to ``requests.BASE`` in the wire's words; all else is
rewritten by a run with ``UPDATE_GOLDEN=1``. So a new case is a new file with ``given`` alone.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from supervisor.contracts.engine import ComputeEngineSpec
from supervisor.engines.devices import apply_devices
from tests.engines.requests import ACCELERATORS, request

GOLDEN = Path(__file__).parents[2] / "golden" / "engines"


def cases(engine: str) -> list[Path]:
    return sorted((GOLDEN / engine).glob("*.json"))


def given(path: Path) -> dict[str, Any]:
    """The changes that a golden file makes to the ordinary request."""
    content: dict[str, Any] = json.loads(path.read_text())["given"]
    return content


def outcome(spec: ComputeEngineSpec, changes: dict[str, Any]) -> dict[str, Any]:
    """What a launch would run, devices applied, and what was given up."""
    launch = request(**changes)
    notes = spec.explain(launch)
    return {
        "given": changes,
        "plan": msgspec.to_builtins(apply_devices(spec.plan(launch), ACCELERATORS)),
        "dropped": list(notes.dropped),
        "notes": list(notes.notes),
    }


def check(spec: ComputeEngineSpec, path: Path) -> None:
    text = render(outcome(spec, given(path)))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text, "review the change, then: make golden"


def render(content: dict[str, Any]) -> str:
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
