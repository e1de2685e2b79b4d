"""Where each engine will listen after its own words had their say; one answer for all who ask."""

from collections.abc import Mapping

import pytest

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.engines.registry import ENGINES
from tests.engines.requests import request


@pytest.mark.parametrize("engine", ENGINE_IDS)
@pytest.mark.parametrize(
    "extra",
    [("--port", "9001", "--host", "0.0.0.0"), ("--host=0.0.0.0", "--port=1", "--port=9001")],
)
def test_a_port_among_the_extra_arguments_is_the_effective_one(
    engine: EngineId, extra: tuple[str, ...]
) -> None:
    spec = ENGINES[engine]
    address = spec.address(extra, {})
    assert (address.host, address.port, address.problem) == ("0.0.0.0", 9001, None)
    plan = spec.plan(request(engine=engine, extraArgs=extra))
    assert plan.bind_host == "0.0.0.0"
    assert [(port.container, port.host) for port in plan.ports] == [(9001, 9001)]
    if engine != "mlx":
        (port,) = spec.plan(request(engine=engine, extraArgs=extra, runtime="docker")).ports
        assert (port.container, port.host) == (spec.default_port, 9001)


@pytest.mark.parametrize("engine", ENGINE_IDS)
@pytest.mark.parametrize("port", ["80abc", "0", "99999", "-1", ""])
def test_what_is_no_port_is_a_problem(engine: EngineId, port: str) -> None:
    problem = str(ENGINES[engine].address([f"--port={port}"], {}).problem)
    assert "65535" in problem


@pytest.mark.parametrize(
    ("engine", "extra"),
    [
        ("vllm", ("--uds", "/run/x.sock")),
        ("vllm", ("--uds=/run/x.sock",)),
        ("vllm", ("--headless",)),
        ("exllamav3", ("--config", "other.yml")),
        ("exllamav3", ("--config=other.yml",)),
        ("llamacpp", ("--host", "/run/x.sock")),
    ],
)
def test_what_no_probe_could_follow_is_a_problem(engine: EngineId, extra: tuple[str, ...]) -> None:
    assert ENGINES[engine].address(extra, {}).problem


@pytest.mark.parametrize(
    ("engine", "env"),
    [
        ("llamacpp", {"LLAMA_ARG_PORT": "9001"}),
        ("exllamav3", {"TABBY_NETWORK_PORT": "9001"}),
    ],
)
def test_a_variable_says_it_too_and_an_argument_beats_it(
    engine: EngineId, env: Mapping[str, str]
) -> None:
    assert ENGINES[engine].address([], env).port == 9001
    assert ENGINES[engine].address(["--port", "9002"], env).port == 9002


@pytest.mark.parametrize("engine", ["vllm", "sglang", "mlx"])
def test_a_config_file_does_not_beat_the_command_line(engine: EngineId) -> None:
    """They put its values before ours (vLLM, SGLang), or have none (mlx)."""
    assert ENGINES[engine].address(["--config", "x.yaml"], {}).problem is None
