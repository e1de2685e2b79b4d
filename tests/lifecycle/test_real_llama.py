"""A real ``llama-server``: the right moment, a chat, its metrics, and how it fails."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from msgspec import UNSET

from supervisor.contracts.event import Launching, Ready, Spawned
from supervisor.contracts.failure import ExitedEarly, SpawnFailed
from tests.lifecycle.house import Home, free_port, opened
from tests.lifecycle.squatter import Squatter, squatting
from tests.parts import real_llama

pytestmark = pytest.mark.anyio


def real(**members: Any) -> dict[str, Any]:
    server = real_llama.require("genuine-llama-server")
    return {"binary": str(server), "model_path": str(real_llama.tiny_gguf())} | members


async def test_it_is_ready_when_it_says_so_itself_and_not_before(home: Home) -> None:
    """HLT-2 (c): half a second of 503, during which the port answers; then a chat at once."""
    model = str(real_llama.smollm2())
    await home.launch(**real(model_path=model), wait=False)
    await home.seen(Spawned)
    port = home.supervisor.get("x").record.port
    said: list[tuple[int, str]] = []
    with anyio.fail_after(60):
        while not home.of(Ready):
            before = home.supervisor.get("x").state
            said.append((await anyio.to_thread.run_sync(_status, port), before))
    assert 503 in {status for status, _ in said}
    assert {state for status, state in said if status == 503} == {"starting"}
    answer = await anyio.to_thread.run_sync(_chat, port)
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    told = await home.supervisor.metrics("x")
    assert told.unavailable is UNSET
    assert told.metrics.generation_tokens_total is not None
    assert told.metrics.generation_tokens_total > 0
    await home.stop()


async def test_nothing_that_was_meant_for_others_steers_it(tmp_path: Path) -> None:
    """ARG-5: it listens on its record's port, and answers without a key."""
    poison = {
        **{"PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere", "VIRTUAL_ENV": "/nowhere"},
        **{"VLLM_PORT": "tcp://10.0.0.1:80", "LLAMA_ARG_PORT": "9999", "LLAMA_API_KEY": "x"},
        **{"LLAMA_ARG_MODEL": "/nowhere", "AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "9998"},
    }
    async with opened(tmp_path, inherited_env={**os.environ, **poison}) as home:
        view = await home.launch(**real())
        answer = await anyio.to_thread.run_sync(_chat, view.record.port)
        assert answer["choices"][0]["message"]["role"] == "assistant"
        await home.stop()


async def test_a_taken_port(home: Home) -> None:
    port = free_port()
    with Squatter(port):
        failure = await home.refused(**real(), port=port)
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "port-taken"


async def test_a_port_that_was_taken_after_we_looked(home: Home) -> None:
    with squatting(home, Launching, lambda it: True):
        failure = await home.refused(**real(), port=free_port())
    assert isinstance(failure, ExitedEarly)
    assert failure.exit_code == 1
    assert failure.diagnosis
    assert failure.diagnosis.code == "port-in-use"


async def test_a_missing_model(home: Home, tmp_path: Path) -> None:
    failure = await home.refused(**real(model_path=str(tmp_path / "none.gguf")))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "model-missing"


async def test_a_missing_model_among_its_own_flags(home: Home, tmp_path: Path) -> None:
    """Nobody looks at that one before llama-server does."""
    none = str(tmp_path / "none.gguf")
    failure = await home.refused(**real(), extra_args=("--model-draft", none))
    assert isinstance(failure, ExitedEarly)
    assert failure.diagnosis
    assert failure.diagnosis.code == "model-missing"
    assert none in failure.diagnosis.evidence


async def test_a_corrupt_model(home: Home, tmp_path: Path) -> None:
    model = tmp_path / "corrupt.gguf"
    model.write_bytes(real_llama.tiny_gguf().read_bytes()[:-200_000])
    failure = await home.refused(**real(model_path=str(model)))
    assert isinstance(failure, ExitedEarly)
    assert failure.diagnosis
    assert failure.diagnosis.code == "model-corrupt"
    assert "is not within the file bounds" in failure.diagnosis.evidence


async def test_a_flag_that_it_does_not_know(home: Home) -> None:
    failure = await home.refused(**real(), extra_args=("--no-such-flag",))
    assert isinstance(failure, ExitedEarly)
    assert failure.exit_code == 1  # its only code, for usage errors as well
    assert failure.diagnosis
    assert failure.diagnosis.code == "bad-flag"
    assert "--no-such-flag" in failure.diagnosis.evidence


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _status(port: int) -> int:
    try:
        with _opener().open(f"http://127.0.0.1:{port}/v1/models", timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def _chat(port: int) -> Any:
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    body = json.dumps({"messages": messages, "max_tokens": 16, "temperature": 0})
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        body.encode(),
        {"Content-Type": "application/json"},
    )
    with _opener().open(request, timeout=60) as reply:
        return json.load(reply)
