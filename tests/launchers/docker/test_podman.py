"""Podman's Docker-compatible socket, by configuration alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contracts.event import Adopted, Stopped
from supervisor.contracts.instance import DockerHandle
from supervisor.launchers.docker.ask import ask
from supervisor.launchers.docker.engine import Engine
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
        assert isinstance(view.record.ref, DockerHandle)
        assert view.record.ref.daemon == f"podman at {engine.folder}/root"
        assert engine.containers() == [container_of(view)]
        await until(lambda: "by podman" in tail(view.log_path or "", 50).lines)
        home.detach()
    async with opened_with(tmp_path, engine, network="host") as home:
        assert (await home.seen(Adopted)).ref == view.record.ref
        assert home.supervisor.get("x").state == "ready"
        await home.stop()
        assert (await home.seen(Stopped)).devices == view.record.devices
    assert engine.containers() == []


async def test_it_is_known_by_its_storage(engine: Podman) -> None:
    """Its id is a new one in each answer, so that nothing may be made of that."""
    ids = {ask(engine.socket, "/info", within_s=20)["ID"] for _ in range(2)}
    assert len(ids) == 2
    api = Engine(engine.socket)
    try:
        found = {await api.identity() for _ in range(2)}
    finally:
        await api.close()
    assert found == {f"podman at {engine.folder}/root"}
