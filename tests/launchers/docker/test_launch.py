"""Launches in containers, against a real Docker Engine."""

from pathlib import Path

from tests.launchers.docker.home import OURS, contained, container_of, opened_with
from tests.parts.dockerd import Dockerd


async def test_a_container_is_launched_proved_and_stopped(tmp_path: Path, dockerd: Dockerd) -> None:
    async with opened_with(tmp_path, dockerd) as home:
        view = await home.launch(**contained())
        assert view.state == "ready"
        assert dockerd.containers(OURS) == [container_of(view)]
        view = await home.stop()
        assert view.state == "exited"
        assert dockerd.containers(OURS) == []
        assert home.story() == ["reserved", "launching", "spawned", "ready", "stopping", "stopped"]
