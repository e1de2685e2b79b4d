"""Ends that somebody else had a hand in, against a real Docker Engine: DKR-1 and DKR-2."""

from pathlib import Path

import anyio.to_thread
import pytest

from supervisor.contracts.event import Exited, Stopping
from supervisor.contracts.failure import SpawnFailed
from supervisor.launchers.docker.labels import container_name
from supervisor.lifecycle.errors import StopIncomplete
from tests.launchers.docker.home import OURS, contained, container_of, opened_with
from tests.lifecycle.house import A, tune, until
from tests.parts.docker_front import in_front_of
from tests.parts.dockerd import Dockerd


async def test_an_exit_with_1_and_two_stops(tmp_path: Path, dockerd: Dockerd) -> None:
    """DKR-1: nothing with our label is left, and the second stop finds the work done."""
    async with opened_with(tmp_path, dockerd) as home:
        launch = contained(env={"FAIL_S": "1"}, devices=(A,))
        view = await home.launch(**launch)
        assert dockerd.containers(OURS) == [container_of(view)]
        exited = await home.seen(Exited)
        first = await home.stop()
        assert (exited.exit_code, exited.signal) == (1, None)
        assert "last words" in exited.log_tail
        assert first.state == "exited"
        assert dockerd.containers(OURS) == []
        assert await home.holders() == {}
        assert (await home.stop()).state == "exited"
        await home.again(**contained(devices=(A,)))


async def test_a_foreign_container_takes_the_name_between_stop_and_launch(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    """DKR-2: it is named and left alone, and with it gone the name serves again."""
    async with opened_with(tmp_path, dockerd) as home:
        await home.launch(**contained())
        await home.stop()
        foreign = dockerd.run(container_name("x"), ["sleep", "100"], {"engine": "mine"})
        failure = await home.refused(**contained())
        assert isinstance(failure, SpawnFailed)
        assert foreign[:12] in failure.detail
        found = dockerd.inspect(foreign)
        assert found is not None
        assert found["State"]["Running"]
        dockerd.remove(foreign)
        await home.again(**contained())


async def test_a_swap_while_the_removal_goes_on(tmp_path: Path, dockerd: Dockerd) -> None:
    """DKR-2: deaf to TERM, then 409 for a while; the next launch of the name meets no conflict."""
    async with (
        in_front_of(dockerd.socket, f"{tmp_path}/front") as front,
        opened_with(tmp_path, dockerd, socket=front.socket) as home,
    ):
        old = await home.launch(**contained(env={"DEAF": "1"}))
        front.answer(r"^DELETE ", 409, '{"message": "is already in progress"}', times=4)
        await home.stop(grace_ms=500)
        assert dockerd.inspect(container_of(old)) is None
        new = await home.launch(**contained())
        assert (new.state, container_of(new) != container_of(old)) == ("ready", True)
        assert len(front.asked(r"^DELETE ")) == 5
        assert len(front.asked(r"^POST .*/containers/create")) == 2
        await home.stop()


async def test_it_is_dead_and_gone_before_it_is_told_to(tmp_path: Path, dockerd: Dockerd) -> None:
    """DKR-2: the kill meets a dead container, the removal none: both are as good as done."""
    async with (
        in_front_of(dockerd.socket, f"{tmp_path}/front") as front,
        opened_with(tmp_path, dockerd, socket=front.socket) as home,
    ):
        view = await home.launch(**contained())
        gone = container_of(view)
        front.answer(r"^POST .*/kill", 409, '{"message": "is not running"}', times=1)
        front.answer(r"^DELETE ", 404, '{"message": "No such container"}', times=1)
        home.start(lambda: home.stop(grace_ms=5_000))
        await home.seen(Stopping)
        await until(lambda: bool(front.asked(r"^POST .*/kill")))
        await anyio.to_thread.run_sync(dockerd.remove, gone)
        await until(lambda: not home.supervisor.list())
        assert dockerd.containers(OURS) == []
        await home.again(**contained())


async def test_the_container_engine_leaves_after_our_term(
    tmp_path: Path, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal was sent, so the stop is not taken back: it ends what it began, and starts nothing
    anew although the policy would.
    """
    tune(monkeypatch, UNKNOWN_RECHECK_S=0.2)
    async with (
        in_front_of(dockerd.socket, f"{tmp_path}/front") as front,
        opened_with(tmp_path, dockerd, socket=front.socket) as home,
    ):
        await home.launch(**contained(devices=(A,), restart="always"))

        def leave() -> None:
            front.away = True

        front.then(r"^POST .*/kill", leave)
        with pytest.raises(StopIncomplete):
            await home.stop(grace_ms=2_000)
        assert front.away
        assert await home.holders() == {A: ["x"]}
        front.as_it_is()
        await until(lambda: not home.supervisor.list())
        assert dockerd.containers(OURS) == []
        assert home.story().count("spawned") == 1
        assert home.story()[-1] == "stopped"
