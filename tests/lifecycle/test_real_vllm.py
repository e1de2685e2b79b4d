"""A real vLLM on the processor, where a program is named: minutes long, and so by hand only.

    ENGINE_SUPERVISOR_VLLM=/venv/bin/vllm python -m pytest tests/lifecycle/test_real_vllm.py

It takes a build for the processor whose package metadata says so (``vllm`` in a version ``+cpu``);
seen with vLLM 0.32.0: ready after 40 to 110 s, 3 GB of memory.
"""

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from msgspec import UNSET

from supervisor.contracts.event import Exited, Stopped, Swept
from supervisor.contracts.failure import ExitedEarly
from supervisor.lifecycle.errors import LaunchRefused
from tests.lifecycle.house import Home, pid_of, until
from tests.parts import tiny_hf

VLLM = os.environ.get("ENGINE_SUPERVISOR_VLLM", "")
MINUTES = 9

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(2 * MINUTES * 60),
    pytest.mark.skipif(not VLLM, reason="ENGINE_SUPERVISOR_VLLM names no vllm program"),
]
ENV = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
FLAGS = ("--enforce-eager", "--max-model-len", "512", "--dtype", "float32", "--max-num-seqs", "4")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    tiny_hf.write(folder)
    return folder


async def launch(home: Home, model: Path, *flags: str) -> Any:
    members = {"engine": "vllm", "binary": VLLM, "model_path": str(model), "env": ENV}
    with anyio.fail_after(MINUTES * 60):
        return await home.supervisor.launch(
            home.params("x", **members, extra_args=(*FLAGS, *flags), deep_check_ms=60_000)
        )


async def refused(home: Home, model: Path, *flags: str) -> ExitedEarly:
    with pytest.raises(LaunchRefused) as caught:
        await launch(home, model, *flags)
    failure = caught.value.failure
    assert isinstance(failure, ExitedEarly)
    await home.nothing_left()
    return failure


def core(main: int) -> int:
    """By its title, for that is written over its environment."""
    [found] = [it for it in psutil.Process(main).children() if it.name().startswith("VLLM::Eng")]
    return found.pid


async def test_its_life(home: Home, model: Path) -> None:
    view = await launch(home, model)
    told = await home.supervisor.metrics("x")
    assert told.unavailable is UNSET
    assert told.unsupported == ()
    assert told.metrics.requests_running == 0.0
    found = (await home.supervisor.detect()).engines
    assert [(it.pid, it.engine, it.model) for it in found if it.instance == "x"] == [
        (pid_of(view), "vllm", str(model))
    ]
    await home.stop()
    assert home.of(Stopped)[0].exit_code == 0


async def test_its_orphans_go_with_it(home: Home, model: Path) -> None:
    """Killed, it leaves an engine core, a worker and a tracker, which hold the devices for ever."""
    view = await launch(home, model)
    os.kill(pid_of(view), signal.SIGKILL)
    await home.seen(Exited)
    await until(lambda: home.supervisor.get("x").exit is not None)
    [swept] = home.of(Swept)
    assert {"VLLM::EngineCor", "VLLM::Worker"} <= {it.name for it in swept.members}
    await home.nothing_left()


async def test_its_zero_is_explained(home: Home, model: Path) -> None:
    view = await launch(home, model)
    os.kill(core(pid_of(view)), signal.SIGKILL)
    told = await home.seen(Exited)
    assert told.exit_code == 0
    assert told.diagnosis
    assert told.diagnosis.code == "engine-died"
    await until(lambda: home.supervisor.get("x").exit is not None)


async def test_what_it_says_when_it_fails(home: Home, model: Path) -> None:
    flag = await refused(home, model, "--no-such-flag")
    assert flag.exit_code == 2
    assert flag.diagnosis
    assert flag.diagnosis.code == "bad-flag"
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100_000])
    corrupt = await refused(home, model)
    assert corrupt.diagnosis
    assert corrupt.diagnosis.code == "model-corrupt"


async def test_it_is_asked_in_tls(home: Home, model: Path) -> None:
    pems = Path(__file__).parents[1] / "parts" / "tls"
    key, cert = str(pems / "key.pem"), str(pems / "cert.pem")
    view = await launch(home, model, "--ssl-keyfile", key, "--ssl-certfile", cert)
    assert view.state == "ready"
    assert (await home.supervisor.metrics("x")).unavailable is UNSET
    await home.stop()
