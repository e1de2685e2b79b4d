"""DKR-3 by whole launches: a real Docker Engine pulls from a registry of the tests' own."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.event import Phase, Ready
from supervisor.contracts.failure import Cancelled, SpawnFailed
from tests.launchers.docker.home import OURS, contained, opened_with
from tests.lifecycle.house import A, until
from tests.parts.dockerd import APPLETS, BUSYBOX, Dockerd, root_of
from tests.parts.registry import Registry, serving


@pytest.fixture
def registry(tmp_path: Path, dockerd: Dockerd) -> Iterator[Registry]:
    salt = tmp_path / "salt"
    salt.write_text(str(tmp_path))  # a layer that the engine has already is not asked for
    files = {"/bin/busybox": BUSYBOX, "/engine": dockerd.folder / "engine", "/salt": salt}
    root = root_of(files, {f"/bin/{it}": "busybox" for it in APPLETS})
    config = {"Env": ["PATH=/bin"], "Entrypoint": ["/engine"]}
    with serving(Registry(root, config)) as registry:
        yield registry


async def test_an_error_in_the_middle_of_a_pull(
    tmp_path: Path, dockerd: Dockerd, registry: Registry
) -> None:
    """(a), and GPU-8: the engine said 200 first; the next launch of the name has the image."""
    registry.torn = True
    launch = contained(docker_image=registry.image("torn"), devices=(A,))
    async with opened_with(tmp_path, dockerd, pull="missing") as home:
        failure = await home.refused(**launch)
        assert isinstance(failure, SpawnFailed)
        assert registry.image("torn") in failure.detail
        assert "blob" in failure.detail
        assert dockerd.containers(OURS) == []
        registry.torn = False
        await home.again(**launch)


async def test_a_slow_pull_under_a_short_deadline(
    tmp_path: Path, dockerd: Dockerd, registry: Registry
) -> None:
    """(b): the time until it has to be ready begins with the container."""
    registry.slow_s = 5.0
    launch = contained(docker_image=registry.image("slow"), ready_deadline_ms=3_000)
    async with opened_with(tmp_path, dockerd, pull="missing") as home:
        began = anyio.current_time()
        view = await home.launch(**launch)
        assert view.state == "ready"
        assert anyio.current_time() - began > 5
        (ready,) = home.of(Ready)
        assert ready.waited_ms < 3_000
        assert next(it.phase for it in home.of(Phase)) == "pulling"
        await home.stop()


async def test_a_cancel_during_a_pull(tmp_path: Path, dockerd: Dockerd, registry: Registry) -> None:
    """(c): the launch ends at once, and nobody goes on pulling."""
    registry.slow_s = 30.0
    launch = contained(docker_image=registry.image("cancelled"), devices=(A,))
    async with opened_with(tmp_path, dockerd, pull="missing") as home:
        home.start(lambda: home.refused(**launch))
        await until(registry.asked_layer.is_set)
        began = anyio.current_time()
        await home.cancel()
        assert anyio.current_time() - began < 1
        assert isinstance(home.supervisor.get("x").failure, Cancelled)
        await until(registry.hung_up.is_set)
        registry.slow_s = 0
        await home.again(**launch)
