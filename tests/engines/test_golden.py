"""Every engine's plans against the golden files, and these against the matrix."""

import os
from pathlib import Path

import pytest

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.engines.registry import ENGINES
from tests.engines import golden
from tests.engines.matrix import PREFIXES
from tests.engines.requests import HOSTS, host
from tests.engines.sheets import SHEETS

if os.environ.get("UPDATE_GOLDEN"):
    golden.write_matrix()

CASES = golden.cases()


@pytest.mark.parametrize("path", CASES, ids=golden.name_of)
def test_golden(path: Path) -> None:
    golden.check(path)
    assert golden.lands(path), "every plan says what the engine's own parser has to make of it"


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_each_case_of_the_matrix_has_its_file(engine: EngineId) -> None:
    wanted = golden.MATRIX[engine]
    made = {
        path.stem: golden.matrix_part(path)
        for path in golden.cases(engine)
        if path.name.startswith(PREFIXES)
    }
    assert made == wanted, "make golden"


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_the_matrix_has_the_hosts_that_the_engine_runs_on(engine: EngineId) -> None:
    sheet, spec = SHEETS[engine], ENGINES[engine]
    for name, changes in HOSTS.items():
        support = spec.supports(host(**changes.get("host", {})))
        assert (name in sheet.hosts) <= support.ok, name
        assert (name in sheet.docker) <= ("docker" in (support.runtimes or ())), name


@pytest.mark.parametrize("path", CASES, ids=golden.name_of)
def test_no_flag_is_planned_twice(path: Path) -> None:
    launch = golden.launch_of(path)
    words = ENGINES[launch.engine].plan(launch).argv[1:]
    ours = [word for word in words[: len(words) - len(launch.extra_args)] if word[:1] == "-"]
    assert len(set(ours)) == len(ours)
