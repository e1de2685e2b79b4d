"""How each engine is asked whether it is ready, against what was measured of the engines."""

import json

import pytest
from msgspec import UNSET

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.engines.registry import ENGINES

MINUTE = 60_000


@pytest.mark.parametrize(
    ("engine", "minutes"),
    [("vllm", 20), ("sglang", 20), ("llamacpp", 5), ("mlx", 5), ("exllamav3", 10)],
)
def test_the_time_for_a_cold_start(engine: EngineId, minutes: int) -> None:
    """Graphs that are compiled take minutes, a file that is mapped seconds."""
    assert ENGINES[engine].health.ready_deadline_ms == minutes * MINUTE


def test_every_engine_is_asked_at_its_health_path() -> None:
    assert {ENGINES[engine].health.path for engine in ENGINE_IDS} == {"/health"}


def test_sglang_generates_a_token_before_it_answers() -> None:
    """At least a second, and up to 20 by its own limit (``SGLANG_HEALTH_CHECK_TIMEOUT``)."""
    timeout_ms = ENGINES["sglang"].health.timeout_ms
    assert timeout_ms is not UNSET
    assert timeout_ms > 20_000


def test_only_mlx_says_yes_before_it_has_a_model() -> None:
    """Its 200 means that a thread lives; the others refuse, or say 503, until they can serve."""
    proving = {engine for engine in ENGINE_IDS if ENGINES[engine].health.ready is not UNSET}
    assert proving == {"mlx"}


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_a_request_for_real_work_is_tiny_and_names_no_model(engine: EngineId) -> None:
    """A name that is not the served one is an error to vLLM, and to mlx_lm.server a download."""
    deep = ENGINES[engine].health.deep
    assert deep is not UNSET
    assert (deep.method, deep.path) == ("POST", "/v1/completions")
    body = json.loads(deep.body)
    assert body["max_tokens"] == 1
    assert "model" not in body
