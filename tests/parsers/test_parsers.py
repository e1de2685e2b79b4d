"""The two parsers that install fast read every golden plan; `make engines-check` asks all."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from supervisor.contracts.engine import EngineId
from tests.engines import golden
from tests.parsers import having
from tests.parsers.asking import Parser, Told, ask, misread, strange_flags

FAST: Mapping[EngineId, Callable[..., Parser]] = {
    "llamacpp": having.llamacpp,
    "mlx": having.mlx,
}
CASES = golden.cases(*FAST)


@cache
def told(engine: EngineId) -> Told:
    return ask(FAST[engine]())


def answer(engine: EngineId) -> Told:
    parser_of(engine)
    return told(engine)


def parser_of(engine: EngineId) -> Parser:
    """The engine's parser; without it the test is skipped."""
    try:
        return FAST[engine]()
    except having.AbsentError as absent:
        reason = f"the parser of {engine} is not here; {absent}"
    if os.environ.get("ENGINE_SUPERVISOR_REQUIRE_PARTS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.mark.parametrize("path", CASES, ids=golden.name_of)
def test_every_value_lands_where_it_is_meant_to(path: Path) -> None:
    assert misread(path, answer(golden.engine_of(path))) is None


@pytest.mark.parametrize("engine", FAST)
def test_our_tables_name_flags_that_there_are(engine: EngineId) -> None:
    assert strange_flags(engine, answer(engine)) == []
