"""Something between us and a real Docker Engine: refusals, a proxy's pages, another engine."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from supervisor.contracts.event import (
    Adopted,
    Exited,
    Released,
    TaskCrashed,
    Unhealthy,
    Warning_,
)
from supervisor.contracts.failure import SpawnFailed
from supervisor.contracts.instance import DockerHandle
from supervisor.launchers.docker.engine import Engine, EngineDown
from supervisor.launchers.docker.labels import container_name
from supervisor.lifecycle.errors import CannotTell, NotOurs, StopIncomplete
from tests.launchers.docker.home import OURS, contained, container_of, opened_with
from tests.lifecycle.house import A, Home, tune, until
from tests.parts.docker_front import HTML, Front, in_front_of
from tests.parts.dockerd import Dockerd, started


@pytest.fixture
async def front(tmp_path: Path, dockerd: Dockerd) -> AsyncIterator[Front]:
    async with in_front_of(dockerd.socket, f"{tmp_path}/front") as front:
        yield front


@pytest.fixture(scope="module")
def other(_dockerd: Dockerd) -> Iterator[Dockerd]:
    """A second engine of this host, with a data root of its own."""
    with started(bridge="none") as dockerd:
        yield dockerd


async def test_what_a_failed_start_left_keeps_its_devices(
    tmp_path: Path, dockerd: Dockerd, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU-8, DKR-1: the launch fails at once, and its lease goes with its container."""
    tune(monkeypatch, UNKNOWN_RECHECK_S=0.2)
    front.answer(r"^POST .*/start", 500)
    front.answer(r"^DELETE ", 500)
    async with opened_with(tmp_path, dockerd, socket=front.socket) as home:
        failure = await home.refused(**contained(devices=(A,)))
        assert isinstance(failure, SpawnFailed)
        assert "scripted" in failure.detail
        assert len(dockerd.containers(OURS)) == 1
        assert await home.holders() == {A: ["x"]}
        front.as_it_is()
        await until(lambda: not home.supervisor.list())
        assert dockerd.containers(OURS) == []
        await home.again(**contained(devices=(A,)))


@pytest.mark.parametrize("status", [400, 404, 409, 500])
@pytest.mark.parametrize(
    "asked", [r"^GET .*/images/", r"^GET .*/version", r"^POST .*/create", r"^POST .*/start"]
)
async def test_what_is_refused_on_the_way_ends_the_launch_and_no_more(
    tmp_path: Path,
    dockerd: Dockerd,
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    status: int,
) -> None:
    """GPU-8: each question of a launch, and each status that a container engine says no with."""
    monkeypatch.setattr("supervisor.launchers.docker.launcher.CONFLICT_TRIES", 3)
    async with opened_with(tmp_path, dockerd, socket=front.socket) as home:
        front.answer(asked, status)
        failure = await home.refused(**contained(devices=(A,)))
        assert isinstance(failure, SpawnFailed)
        assert home.of(TaskCrashed) == []
        front.as_it_is()
        assert dockerd.containers(OURS) == []
        await home.again(**contained(devices=(A,)))


async def test_a_leftover_that_is_not_given_up_ends_the_launch_and_no_more(
    tmp_path: Path, dockerd: Dockerd, front: Front
) -> None:
    """DKR-2."""
    key, _, supervisor = OURS.partition("=")
    marks = {key: supervisor, "engine-supervisor.nonce": "0" * 32}
    async with opened_with(tmp_path, dockerd, socket=front.socket) as home:
        dead = dockerd.create(container_name("x"), ["sleep", "0"], marks)
        for refused in (r"^GET .*/containers/engine-supervisor-x/json", r"^DELETE "):
            front.answer(refused, 500)
            failure = await home.refused(**contained())
            assert isinstance(failure, SpawnFailed)
            assert "scripted" in failure.detail
            front.as_it_is()
        assert home.of(TaskCrashed) == []
        await home.again(**contained())
        assert dockerd.inspect(dead) is None


@pytest.mark.parametrize(
    ("status", "type_", "body"),
    [
        (500, "application/json", "{}"),
        (500, "application/json", "null"),
        (500, "application/json", HTML),
        (200, "application/json", HTML),
        (200, "application/json", "[]"),
        (200, "text/html", HTML),
        (404, "application/json", "{}"),
        (502, "text/html", HTML),
        (503, "text/html", HTML),
    ],
)
async def test_what_no_engine_says_is_no_answer(
    dockerd: Dockerd, front: Front, status: int, type_: str, body: str
) -> None:
    engine = Engine(front.socket)
    front.answer(r"/(json|version|wait)", status, body, type_=type_)
    try:
        for _ in range(2):  # before its version is known, and after
            with pytest.raises(EngineDown):
                await engine.inspect("x")
            with pytest.raises(EngineDown):
                await engine.has_image("x")
            front.as_it_is()
            assert await engine.identity()
            front.answer(r"/(json|version|wait)", status, body, type_=type_)
    finally:
        await engine.close()


async def test_a_container_engine_comes_back_as_another_version(
    dockerd: Dockerd, front: Front
) -> None:
    """An upgrade under a living supervisor: Docker 29 speaks 1.44 and later alone, 24 up to 1.43.

    Here one that spoke 1.40 comes back as one that speaks 1.41 alone.
    """
    engine = Engine(front.socket)
    front.answer("/version", 200, '{"ApiVersion": "1.40"}', times=2)
    try:
        assert await engine.inspect("x") is None
        assert front.asked("/v1.40/containers/x/json")
        front.answer("/v1.40/", 400, '{"message": "client version 1.40 is too old"}')
        front.away = True
        with pytest.raises(EngineDown):
            await engine.inspect("x")
        front.away = False
        assert await engine.inspect("x") is None
        assert front.asked("/v1.41/containers/x/json")
    finally:
        await engine.close()


async def test_no_watch_ends_another(
    tmp_path: Path, dockerd: Dockerd, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers about one container that nobody can read, while the other one's end is news."""
    tune(monkeypatch, RELAXED_S=0.1)
    async with opened_with(tmp_path, dockerd, socket=front.socket) as home:
        strange = container_of(await home.launch("x", **contained(devices=(A,))))
        plain = container_of(await home.launch("y", **contained()))
        front.answer(rf"/containers/{strange}/", 500, "{}")
        dockerd.do(strange, "pause")  # all are looked at again
        dockerd.do(strange, "unpause")
        await until(lambda: len(front.asked(rf"GET .*{strange}/json")) > 3)
        dockerd.do(plain, "kill")
        await home.seen(Exited, "y")
        await until(lambda: len(home.supervisor.list()) == 1)
        assert await home.holders() == {A: ["x"]}
        assert not home.of(TaskCrashed)
        assert not home.of(Unhealthy)
        front.as_it_is()
        dockerd.do(strange, "kill")
        await home.seen(Exited, "x")
        await until(lambda: not home.supervisor.list())


async def test_a_defect_in_one_watch_ends_no_other(
    tmp_path: Path, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_with(tmp_path, dockerd) as home:
        broken = container_of(await home.launch("x", **contained()))
        plain = container_of(await home.launch("y", **contained()))
        wait = Engine.wait

        async def defect(engine: Engine, container: str) -> int | None:
            if container == broken:
                raise AssertionError("a defect")
            return await wait(engine, container)

        monkeypatch.setattr(Engine, "wait", defect)
        dockerd.do(broken, "pause")
        dockerd.do(broken, "unpause")
        dockerd.do(plain, "kill")
        await home.seen(Exited, "y")
        monkeypatch.undo()
        dockerd.do(broken, "kill")
        await home.seen(Exited, "x")
        assert home.of(TaskCrashed) == []
        await until(lambda: not home.supervisor.list())


async def test_another_engine_on_the_socket(
    tmp_path: Path,
    dockerd: Dockerd,
    other: Dockerd,
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has none of our containers, which says nothing about them: not gone, and not touched."""
    tune(monkeypatch, RELAXED_S=0.1, UNKNOWN_RECHECK_S=0.1)
    async with opened_with(tmp_path, dockerd, socket=front.socket, clean=False) as home:
        view = await home.launch(**contained(devices=(A,)))
        assert isinstance(view.record.ref, DockerHandle)
        assert f" at {dockerd.folder}/root" in (view.record.ref.daemon or "")
        await swap(front, other)
        await held(home, dockerd)
        await until(lambda: any(names_both(it.detail, dockerd, other) for it in home.of(Warning_)))
        with pytest.raises(CannotTell) as refused:
            await home.stop(grace_ms=100)
        assert names_both(str(refused.value), dockerd, other)
        await held(home, dockerd)
        home.detach()
    async with opened_with(tmp_path, dockerd, socket=front.socket) as home:
        await until(lambda: any(names_both(it.detail, dockerd, other) for it in home.of(Warning_)))
        await held(home, dockerd)
        await swap(front, dockerd)
        await until(lambda: bool(home.of(Adopted)))
        assert home.supervisor.get("x").record.ref == view.record.ref
        await home.stop()


async def test_an_engine_that_was_replaced_for_good(
    tmp_path: Path,
    dockerd: Dockerd,
    other: Dockerd,
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A person vouches that what nobody can look at is gone; nothing else frees its devices."""
    tune(monkeypatch, RELAXED_S=0.1, UNKNOWN_RECHECK_S=0.1)
    async with opened_with(tmp_path, dockerd, socket=front.socket) as home:
        view = await home.launch(**contained(devices=(A,), restart="always"))
        with pytest.raises(NotOurs, match="stop it instead"):
            await home.supervisor.release("x", force=True)
        await swap(front, other)
        with pytest.raises(CannotTell, match="enginectl release --force x"):
            await home.stop(grace_ms=100)
        with pytest.raises(CannotTell, match="enginectl release --force x"):
            await home.supervisor.release("x")
        await held(home, dockerd)
        reply = await home.supervisor.release("x", force=True)
        assert reply.devices == (A,)
        assert await home.holders() == {}
        assert home.supervisor.list() == ()
        assert [it.devices for it in home.of(Released)] == [(A,)]
        (warning,) = [it for it in home.of(Warning_) if it.code == "released-alive"]
        assert names_both(warning.detail, dockerd, other)
        found = dockerd.inspect(container_of(view))
        assert found is not None
        assert found["State"]["Running"]
        await swap(front, dockerd)
        failure = await home.refused(**contained(devices=(A,)))
        assert isinstance(failure, SpawnFailed)
        assert "`docker rm -f`" in failure.detail
        dockerd.remove(container_of(view))
        await home.again(**contained(devices=(A,)))


async def test_a_stop_that_began_at_an_engine_that_never_came_back(
    tmp_path: Path,
    dockerd: Dockerd,
    other: Dockerd,
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried again for ever; a person's word ends that, too."""
    tune(monkeypatch, UNKNOWN_RECHECK_S=0.1)
    async with opened_with(tmp_path, dockerd, socket=front.socket) as home:
        view = await home.launch(**contained(devices=(A,), env={"DEAF": "1"}))

        def leave() -> None:
            front.upstream, front.away = other.socket, True

        front.then(r"^POST .*/kill", leave)
        with pytest.raises(StopIncomplete):
            await home.stop(grace_ms=100)
        front.as_it_is()
        assert await home.holders() == {A: ["x"]}
        assert (await home.supervisor.release("x", force=True)).devices == (A,)
        assert await home.holders() == {}
        dockerd.remove(container_of(view))


async def held(home: Home, dockerd: Dockerd) -> None:
    await anyio.sleep(0.5)  # five probes
    assert await home.holders() == {A: ["x"]}
    now = home.supervisor.get("x")
    assert (now.state, now.health.misses, home.of(Unhealthy)) == ("ready", 0, [])
    found = dockerd.inspect(container_of(home.supervisor.get("x")))
    assert found is not None
    assert found["State"]["Running"]


def names_both(text: str, one: Dockerd, other: Dockerd) -> bool:
    return f"{one.folder}/root" in text and f"{other.folder}/root" in text


async def swap(front: Front, dockerd: Dockerd) -> None:
    """Another engine, as if it had been started in the place of the one before."""
    front.away = True
    await anyio.sleep(0.3)
    front.upstream, front.away = dockerd.socket, False
