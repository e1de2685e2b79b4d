"""A supervisor whose container engine is the tests' own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from supervisor.contracts.config import Config, DevicesConfig, DockerConfig
from supervisor.contracts.instance import DockerHandle, InstanceView
from tests.lifecycle.house import CARDS, POOL, SUPERVISOR_ID, Home, Steps, opened
from tests.parts.dockerd import ENGINE, Dockerd

OURS = f"engine-supervisor.supervisor={SUPERVISOR_ID}"


@asynccontextmanager
async def opened_with(
    folder: Path, dockerd: Dockerd, *, clean: bool = True, **docker: Any
) -> AsyncIterator[Home]:
    """A house in ``folder``; ``docker`` goes into that table of its config."""
    table = DockerConfig(**{"socket": dockerd.socket, "pull": "never"} | docker)
    config = Config(ports=POOL, devices=DevicesConfig(static=CARDS), docker=table)
    steps = Steps()
    async with opened(folder, config=config, containers=True, clean=clean, at=steps) as home:
        home.steps = steps
        yield home


def contained(**members: Any) -> dict[str, Any]:
    """Members of a launch of the stand-in engine, on the shared CPU."""
    return {"runtime": "docker", "docker_image": ENGINE, "binary": "/none"} | members


def container_of(view: InstanceView) -> str:
    assert isinstance(view.record.ref, DockerHandle)
    return view.record.ref.container
