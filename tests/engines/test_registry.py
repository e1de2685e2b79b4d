"""The registry knows every engine of the contract, by a row or by a reason."""

import pytest

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.engines.registry import ENGINES, engine_spec, support_of
from tests.engines.requests import host


def test_the_order_is_the_contracts() -> None:
    assert list(ENGINES) == [engine for engine in ENGINE_IDS if engine in ENGINES]
    assert all(spec.id == engine for engine, spec in ENGINES.items())


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_every_engine_has_an_answer(engine: EngineId) -> None:
    support = support_of(engine, host())
    assert support.ok == (engine_spec(engine) is not None)
    if not support.ok:
        assert engine in str(support.reason)
