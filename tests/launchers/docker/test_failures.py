"""How launches in containers fail, and what is left then: nothing. Against a real Docker Engine."""

import json
import socket
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.event import Exited, LaunchFailed, PortChanged, TaskCrashed
from supervisor.contracts.failure import Cancelled, ExitedEarly, SpawnFailed
from supervisor.launchers.docker.ask import ask
from supervisor.launchers.docker.labels import container_name
from tests.launchers.docker.home import OURS, contained, container_of, opened_with
from tests.lifecycle.house import until
from tests.parts.dockerd import APPLETS, BUSYBOX, TINY, Dockerd, root_of


async def test_an_image_that_is_not_there(tmp_path: Path, dockerd: Dockerd) -> None:
    async with opened_with(tmp_path, dockerd) as home:
        failure = await home.refused(**contained(docker_image="none/such:1"))
        assert isinstance(failure, SpawnFailed)
        assert (failure.reason, "none/such:1" in failure.detail) == ("image", True)


@pytest.mark.parametrize("pull", ["missing", "always", "never"])
async def test_an_image_whose_name_is_none(tmp_path: Path, dockerd: Dockerd, pull: str) -> None:
    """Docker looks at the name before it looks for the image, and says 400 to it."""
    async with opened_with(tmp_path, dockerd, pull=pull) as home:
        failure = await home.refused(**contained(docker_image="Not/Lower:1"))
        assert isinstance(failure, SpawnFailed)
        assert failure.reason == "image"
        assert "Not/Lower:1" in failure.detail
        assert "repository name must be lowercase" in failure.detail
        assert home.of(TaskCrashed) == []


async def test_a_pull_that_finds_no_registry(tmp_path: Path, dockerd: Dockerd) -> None:
    """Refused with a 500: that may pass, so it is not called the image's fault."""
    async with opened_with(tmp_path, dockerd, pull="missing") as home:
        failure = await home.refused(**contained(docker_image="127.0.0.1:9/none/such:1"))
        assert isinstance(failure, SpawnFailed)
        assert "127.0.0.1:9/none/such:1 cannot be had" in failure.detail
        assert not failure.reason


async def test_a_program_that_the_image_lacks(tmp_path: Path, dockerd: Dockerd) -> None:
    image = "test/empty:1"
    dockerd.import_image(image, root_of({"/bin/busybox": BUSYBOX}), 'ENTRYPOINT ["/no/such"]')
    async with opened_with(tmp_path, dockerd) as home:
        failure = await home.refused(**contained(docker_image=image))
        # The init process is there and runs it: so it is an exit, in the shells' own code for that.
        assert isinstance(failure, ExitedEarly)
        assert failure.exit_code == 127
        assert failure.diagnosis
        assert failure.diagnosis.code == "program-missing"
        assert "/no/such" in failure.diagnosis.evidence
        assert dockerd.containers(OURS) == []
        await home.again(**contained())


async def test_an_early_exit_says_code_and_last_words(tmp_path: Path, dockerd: Dockerd) -> None:
    async with opened_with(tmp_path, dockerd) as home:
        failure = await home.refused(**contained(env={"EXIT": "3", "SAY": "hello"}))
        assert isinstance(failure, ExitedEarly)
        assert (failure.exit_code, failure.signal) == (3, None)
        # One stream has an order; two of them have none.
        lines = failure.log_tail.splitlines()
        lines.remove("last words")
        assert (lines[0].startswith("arguments: "), lines[1:]) == (True, ["hello"])
        assert dockerd.containers(OURS) == []


async def test_the_kernels_killer_is_named(tmp_path: Path, dockerd: Dockerd) -> None:
    async with opened_with(tmp_path, dockerd) as home:
        home.start(lambda: home.refused(**contained(env={"HOG": "1"})))
        await until(lambda: any("arguments" in dockerd.said(it) for it in dockerd.containers(OURS)))
        (container,) = dockerd.containers(OURS)
        limit = json.dumps({"Memory": 16 << 20, "MemorySwap": 16 << 20}).encode()
        ask(dockerd.socket, f"/containers/{container}/update", "POST", 20, limit)
        ask(dockerd.socket, f"/containers/{container}/kill?signal=USR1", "POST")
        failure = (await home.seen(LaunchFailed)).failure
        await until(lambda: not home.supervisor.list())
        assert isinstance(failure, ExitedEarly)
        assert failure.diagnosis
        assert (failure.exit_code, failure.diagnosis.code) == (137, "out-of-memory")
        assert failure.detail
        assert "want of memory" in failure.detail


async def test_a_port_that_was_stolen_meanwhile(tmp_path: Path, dockerd: Dockerd) -> None:
    """Between the look at it and the start of the container: another one of the pool is taken."""
    async with opened_with(tmp_path, dockerd) as home:
        thief = socket.socket()
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def steal() -> None:
            thief.bind(("127.0.0.1", home.record_on_disk().port))
            thief.listen()

        home.steps.then["recorded"] = steal
        with thief:
            view = await home.launch(**contained())
        (moved,) = home.of(PortChanged)
        assert (view.state, view.record.port) == ("ready", moved.to)
        await home.stop()


async def test_cancel_while_it_loads(tmp_path: Path, dockerd: Dockerd) -> None:
    async with opened_with(tmp_path, dockerd) as home:
        home.start(lambda: home.refused(**contained(env={"LOAD_S": "60"})))
        await until(lambda: "spawned" in home.story())
        await home.cancel()
        await until(lambda: not home.supervisor.list())
        assert isinstance(home.supervisor.get("x").failure, Cancelled)
        assert dockerd.containers(OURS) == []


async def test_foreign_and_dead_holders_of_the_name(tmp_path: Path, dockerd: Dockerd) -> None:
    """DKR-2."""
    async with opened_with(tmp_path, dockerd) as home:
        foreign = dockerd.run(container_name("x"), ["sleep", "100"], {"engine": "mine"})
        failure = await home.refused(**contained())
        assert isinstance(failure, SpawnFailed)
        assert container_name("x") in failure.detail
        found = dockerd.inspect(foreign)
        assert found is not None
        assert found["State"]["Running"]
        dockerd.remove(foreign)

        key, _, supervisor = OURS.partition("=")
        ours = {key: supervisor, "engine-supervisor.nonce": "0" * 32}
        dead = dockerd.run(container_name("x"), ["sleep", "0"], ours)
        dockerd.do(dead, "wait")
        await home.again(**contained())
        assert dockerd.inspect(dead) is None


async def test_a_dead_container_of_somebody_else_that_has_the_name(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    """DKR-2: what is in it may be all that somebody has of something."""
    async with opened_with(tmp_path, dockerd) as home:
        for labels in ({}, {"engine-supervisor.supervisor": "other"}):
            foreign = dockerd.create(container_name("x"), ["sleep", "0"], labels)
            failure = await home.refused(**contained())
            assert isinstance(failure, SpawnFailed)
            assert foreign[:12] in failure.detail
            assert "remove it or rename it" in failure.detail
            assert dockerd.inspect(foreign) is not None
            dockerd.remove(foreign)


async def test_a_living_container_of_ours_that_has_the_name(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    """DKR-2: no record leads to it, and it may serve somebody: it is named, with what ends it."""
    key, _, supervisor = OURS.partition("=")
    marks = {key: supervisor, "engine-supervisor.nonce": "0" * 32}
    async with opened_with(tmp_path, dockerd) as home:
        living = dockerd.run(container_name("x"), ["sleep", "100"], marks)
        failure = await home.refused(**contained())
        assert isinstance(failure, SpawnFailed)
        assert living[:12] in failure.detail
        assert "`docker rm -f`" in failure.detail
        found = dockerd.inspect(living)
        assert found is not None
        assert found["State"]["Running"]
        dockerd.remove(living)
        await home.again(**contained())


async def test_an_images_own_volumes_go_with_the_container(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    """However it ends; the fixture finds what is left."""
    image = "test/volume:1"
    files = {"/bin/busybox": BUSYBOX, "/engine": dockerd.folder / "engine"}
    links = {f"/bin/{it}": "busybox" for it in APPLETS}
    changes = "ENV PATH=/bin", 'ENTRYPOINT ["/engine"]', 'VOLUME ["/data"]'
    dockerd.import_image(image, root_of(files, links), *changes)
    async with opened_with(tmp_path, dockerd) as home:
        await home.launch(**contained(docker_image=image))
        assert len(dockerd.left()["volumes"]) == 1
        await home.stop()
        assert dockerd.left()["volumes"] == []
        await home.refused(**contained(docker_image=image, env={"EXIT": "3"}))
        assert dockerd.left()["volumes"] == []


async def test_it_is_removed_from_outside(tmp_path: Path, dockerd: Dockerd) -> None:
    """DKR-1."""
    async with opened_with(tmp_path, dockerd) as home:
        view = await home.launch(**contained())
        dockerd.remove(container_of(view))
        exited = await home.seen(Exited)
        assert exited.exit_code in (137, None)
        await until(lambda: not home.supervisor.list())
        await home.again(**contained())


async def test_deaf_and_paused_engines_are_stopped(tmp_path: Path, dockerd: Dockerd) -> None:
    async with opened_with(tmp_path, dockerd) as home:
        await home.launch(**contained(env={"DEAF": "1"}))
        began = anyio.current_time()
        await home.stop(grace_ms=700)
        assert anyio.current_time() - began < 8
        view = await home.launch(**contained())
        dockerd.do(container_of(view), "pause")
        await home.stop()
        assert dockerd.containers(OURS) == []


async def test_a_stranger_is_not_taken_for_the_leftover(tmp_path: Path, dockerd: Dockerd) -> None:
    """Nothing without our marks is ever touched, whatever else is ended."""
    stranger = dockerd.run("stranger", ["sleep", "100"], {"engine-supervisor.supervisor": "other"})
    async with opened_with(tmp_path, dockerd) as home:
        await home.launch(**contained())
        await home.stop()
        found = dockerd.inspect(stranger)
        assert found is not None
        assert found["State"]["Running"]
        assert found["Config"]["Image"] == TINY
    dockerd.remove(stranger)
