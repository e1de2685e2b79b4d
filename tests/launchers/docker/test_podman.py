"""Podman's Docker-compatible socket, by configuration alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contracts.event import Adopted, Stopped
from supervisor.logs.reading import tail
from tests.launchers.docker.home import contained, container_of, opened_with
from tests.lifecycle.house import until
from tests.parts.podman import ENGINE, Podman, podman, require_podman


@pytest.fixture(scope="module")
def engine() -> Iterator[Podman]:
    require_podman()
    with podman() as serving:
        yield serving


async def test_launched_adopted_and_stopped(tmp_path: Path, engine: Podman) -> None:
    """Ready by proof on the host's network, its log, a new daemon, a stop, and nothing left."""
    launch = contained(docker_image=ENGINE, env={"SAY": "by podman"})
    async with opened_with(tmp_path, engine, clean=False, network="host") as home:
        view = await home.launch(**launch)
        assert view.state == "ready"
        assert engine.containers() == [container_of(view)]
        await until(lambda: "by podman" in tail(view.log_path or "", 50).lines)
        home.detach()
    async with opened_with(tmp_path, engine, network="host") as home:
        assert (await home.seen(Adopted)).ref == view.record.ref
        assert home.supervisor.get("x").state == "ready"
        await home.stop()
        assert (await home.seen(Stopped)).devices == view.record.devices
    assert engine.containers() == []
