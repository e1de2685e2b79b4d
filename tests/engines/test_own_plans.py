"""What we launch we also recognise: every golden plan, read back from its command line alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.engines.invocation import (
    detect_engine,
    extract_model_path,
    extract_port,
)
from tests.engines.golden import cases, engine_of, launch_of, name_of


def plan_of(path: Path) -> Any:
    return json.loads(path.read_text())["plan"]


WRAPPED = ("exllamav3-own-script",)
"""A shell script, which is no engine: what it starts is one."""

IN_PROCESS = [
    path for path in cases() if plan_of(path)["kind"] == "process" and name_of(path) not in WRAPPED
]


@pytest.mark.parametrize("path", IN_PROCESS, ids=name_of)
def test_a_plan_is_recognised_as_its_own_engine(path: Path) -> None:
    engine, launch, plan = engine_of(path), launch_of(path), plan_of(path)
    argv, env = plan["argv"], plan["env"]
    assert detect_engine(argv) == engine
    assert extract_port(engine, argv, env) == plan["ports"][0]["host"]
    model = extract_model_path(engine, argv)
    if "over-model" in path.stem:  # the extra arguments name another one, which counts
        assert model
        assert model != launch.model_path
    else:
        assert model == launch.model_path.rstrip("/")
