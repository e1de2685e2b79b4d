"""A real ``mlx_lm.server`` on the processor: the right moment, a chat, and how it fails.

It listens before it has a model, says 200 on ``/health`` while it loads, and stays up when it
cannot load or cannot listen (measured, mlx-lm 0.32.2): so nothing here may take it at its word.
"""

import json
import shutil
import time
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from supervisor.contracts.event import Launching, Ready, Spawned
from supervisor.contracts.failure import ExitedEarly, LaunchFailure, SpawnFailed, UnhealthyTimeout
from supervisor.contracts.instance import InstanceView
from supervisor.engines.metrics import CANONICAL
from supervisor.lifecycle.errors import LaunchRefused
from tests.lifecycle.house import Home, free_port, pid_of
from tests.lifecycle.squatter import squatting
from tests.parts import real_llama

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

OFFLINE = {"HF_HUB_OFFLINE": "1"}
LOAD_S = 100
"""For imports on a busy machine; 3 to 7 s on a quiet one."""


def asked_for(**members: Any) -> dict[str, Any]:
    usual = {
        "engine": "mlx",
        "binary": str(real_llama.mlx_server()),
        "model_path": str(real_llama.tiny_hf()),
        "env": OFFLINE,
        "ready_deadline_ms": LOAD_S * 1000,
    }
    return usual | members


async def launch(home: Home, **members: Any) -> InstanceView:
    with anyio.fail_after(LOAD_S + 20):
        return await home.supervisor.launch(home.params("x", **asked_for(**members)))


async def refused(home: Home, **members: Any) -> LaunchFailure:
    """As the house's own, for an engine that takes longer to say no."""
    with pytest.raises(LaunchRefused) as caught:
        await launch(home, **members)
    home.told_once(caught.value.failure)
    await home.nothing_left()
    return caught.value.failure


SLOWLY = """
import time
from mlx_lm import server

load = server.ModelProvider._load

def slowly(self, *key):
    time.sleep(3)
    return load(self, *key)

server.ModelProvider._load = slowly
server.main()
"""


def asked(view: InstanceView, request: str) -> list[str]:
    """The status of each answer to such a request, as the server logs them."""
    assert view.log_path
    lines = Path(view.log_path).read_text().splitlines()
    return [line.rpartition('" ')[2].split()[0] for line in lines if request in line]


def spoiled(folder: Path, *, cut: int) -> Path:
    """The tiny model, with its weights cut short."""
    shutil.copytree(real_llama.tiny_hf(), folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-cut])
    return folder


async def test_it_is_ready_when_it_can_answer_and_not_before(home: Home) -> None:
    view = await launch(home)
    assert asked(view, '"POST /v1/completions') == ["200"]  # it answered one, and is ready at once
    began = time.monotonic()
    reply = await anyio.to_thread.run_sync(_chat, view.record.port)
    assert time.monotonic() - began < 10
    assert reply["choices"][0]["message"]["content"]
    told = await home.supervisor.metrics("x")
    assert told.unsupported == CANONICAL  # it has no such page (404, measured)
    found = [it for it in (await home.supervisor.detect()).engines if it.pid == pid_of(view)]
    assert [(it.engine, it.model, it.port, it.instance) for it in found] == [
        ("mlx", str(real_llama.tiny_hf()), view.record.port, "x")
    ]
    await home.stop()


async def test_the_200_of_its_health_path_means_nothing_while_it_loads(
    home: Home, tmp_path: Path
) -> None:
    """The server itself, made to take three seconds longer for its model."""
    binary = tmp_path / "mlx_lm.server"
    binary.write_text(f"#!{real_llama.mlx_server().parent}/venv/bin/python\n{SLOWLY}")
    binary.chmod(0o755)
    await launch(home, binary=str(binary), wait=False)
    await home.seen(Spawned)
    view = home.supervisor.get("x")
    with anyio.fail_after(LOAD_S):
        while not asked(view, '"GET /health'):  # noqa: ASYNC110
            await anyio.sleep(0.05)
        assert asked(view, '"GET /health')[0] == "200"
        for _ in range(20):
            assert home.supervisor.get("x").state == "starting"
            await anyio.sleep(0.1)
        await home.seen(Ready, "x")
    assert asked(view, '"POST /v1/completions') == ["200"]
    assert asked(view, '"GET /health') == ["200"]  # the one probe hung on until the model was there
    await home.stop()


async def test_a_corrupt_model_is_told_long_before_the_deadline(home: Home, tmp_path: Path) -> None:
    """It says so and stays up, with 503 for ever."""
    model = spoiled(tmp_path / "spoiled", cut=100_000)
    failure = await refused(home, model_path=str(model), ready_deadline_ms=600_000)
    assert isinstance(failure, UnhealthyTimeout)
    assert failure.waited_ms < LOAD_S * 1000
    assert failure.diagnosis
    assert failure.diagnosis.code == "model-corrupt"
    assert "load_safetensors" in failure.diagnosis.evidence


async def test_a_model_folder_that_is_none(home: Home, tmp_path: Path) -> None:
    failure = await refused(home, model_path=str(tmp_path / "nothing"))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "model-missing"


async def test_a_port_that_was_taken_after_we_looked(home: Home) -> None:
    """``OSError: [Errno 98]``, and then it stays for ever (alive after 25 s, measured)."""
    with squatting(home, Launching, lambda it: True):
        failure = await refused(home, port=free_port(), ready_deadline_ms=600_000)
    assert isinstance(failure, UnhealthyTimeout)
    assert failure.waited_ms < LOAD_S * 1000
    assert failure.diagnosis
    assert failure.diagnosis.code == "port-in-use"


async def test_a_flag_that_it_does_not_know(home: Home) -> None:
    failure = await refused(home, extra_args=("--no-such-flag",))
    assert isinstance(failure, ExitedEarly)
    assert failure.exit_code == 2
    assert failure.diagnosis
    assert failure.diagnosis.code == "bad-flag"


def _chat(port: int) -> Any:
    body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8})
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        body.encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as reply:
        return json.load(reply)
