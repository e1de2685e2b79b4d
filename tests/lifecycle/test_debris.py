"""GPU-8: after a failure of any kind the same name, device and port serve the next launch."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web

from supervisor.contracts.config import Config, DevicesConfig, DockerConfig
from supervisor.contracts.event import Spawned
from supervisor.contracts.failure import (
    Cancelled,
    ExitedEarly,
    SpawnFailed,
    UnhealthyTimeout,
    UnsupportedFailure,
)
from supervisor.lifecycle.errors import LaunchRefused
from tests.lifecycle.house import CARDS, POOL, Home, free_port, opened
from tests.parts.fake_docker import progress, serving

pytestmark = pytest.mark.anyio


async def no_space(response: web.StreamResponse) -> None:
    await progress(response, status="Pulling from x/y", id="1")
    message = "write /var: no space left on device"
    await progress(response, error=message, errorDetail={"message": message})


async def test_each_failure_in_turn(tmp_path: Path) -> None:
    """One house, one name, one device that is held alone, one port; and a good engine after each.

    ``Home.again`` looks for records, leases, processes and temporary files before and after it.
    """
    async with serving(f"{tmp_path}/docker") as fake:
        fake.pull = no_space
        docker = DockerConfig(socket=fake.socket)
        config = Config(ports=POOL, devices=DevicesConfig(static=CARDS), docker=docker)
        async with opened(tmp_path, config=config, containers=True) as home:
            place: dict[str, Any] = {"port": free_port(), "devices": ("cpu:0",), "exclusive": True}

            failure: object = await home.refused(engine="exllamav3", **place)
            assert isinstance(failure, UnsupportedFailure)
            await home.again(**place)

            failure = await home.refused(binary="/nowhere/llama-server", **place)
            assert isinstance(failure, SpawnFailed)
            await home.again(**place)

            failure = await home.refused(binary=home.stub(load=60, exit_after=0.05), **place)
            assert isinstance(failure, ExitedEarly)
            await home.again(**place)

            failure = await home.refused(binary=home.stub(load=60), ready_deadline_ms=300, **place)
            assert isinstance(failure, UnhealthyTimeout)
            await home.again(**place)

            await cancelled(home, place)
            await home.again(**place)

            image: dict[str, Any] = {
                "runtime": "docker",
                "docker_image": "x/y:1",
                "binary": "/none",
            }
            failure = await home.refused(**image, **place)
            assert isinstance(failure, SpawnFailed)
            assert "no space left on device" in failure.detail
            assert fake.asked("containers/create") == []
            await home.again(**place)


async def cancelled(home: Home, place: dict[str, Any]) -> None:
    async def launch() -> None:
        with pytest.raises(LaunchRefused) as caught:
            await home.launch(binary=home.stub(load=60), **place)
        assert caught.value.failure == Cancelled()

    before = len(home.of(Spawned))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(launch)
        await home.seen(Spawned, times=before + 1)
        await home.cancel()
