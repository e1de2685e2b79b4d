"""What a real engine cannot be made to do, by a scripted one."""

import asyncio
import base64
import json
import socket
from pathlib import Path
from typing import Literal

import anyio
import pytest
from aiohttp import web
from msgspec.structs import replace

from supervisor.contracts.config import DockerConfig
from supervisor.contracts.engine import DeviceRequest, HealthCheck, LaunchPlan, StopStyle
from supervisor.contracts.instance import DockerHandle
from supervisor.launchers.base import (
    CannotTellError,
    NotOursError,
    SpawnError,
    SpawnTicket,
    StopUnfinishedError,
)
from supervisor.launchers.docker.body import create_body
from supervisor.launchers.docker.engine import Engine, EngineDown
from supervisor.launchers.docker.gated import GatedContainer
from supervisor.launchers.docker.image import have_image
from supervisor.launchers.docker.labels import NONCE
from supervisor.launchers.docker.launcher import DockerLauncher
from supervisor.launchers.docker.removal import remove
from supervisor.launchers.docker.running import DockerRunning
from supervisor.launchers.docker.watch import Watch
from tests.lifecycle.house import until
from tests.parts.fake_docker import DYING_S, ID, FakeDocker, progress, serving

CONFIG = DockerConfig()
REF = DockerHandle(container=ID)


async def pull(fake: FakeDocker, told: list[str], config: DockerConfig = CONFIG) -> None:
    engine = Engine(fake.socket)
    try:
        await have_image(engine, "x/y:1", config, {}, lambda _, detail: told.append(detail))
    finally:
        await engine.close()


async def test_an_error_inside_the_progress_is_noticed(tmp_path: Path) -> None:
    """DKR-3."""

    async def full(response: web.StreamResponse) -> None:
        await progress(response, status="Pulling from x/y", id="1")
        await progress(
            response,
            error="write /var: no space left on device",
            errorDetail={"message": "write /var: no space left on device"},
        )

    async with serving(f"{tmp_path}/s") as fake:
        fake.pull = full
        with pytest.raises(SpawnError, match="no space left on device"):
            await pull(fake, [])
        assert fake.asked("containers/create") == []


async def test_layers_are_told_and_the_image_has_to_be_there(tmp_path: Path) -> None:
    async def good(response: web.StreamResponse) -> None:
        detail = {"current": 1 << 20, "total": 4 << 20}
        await progress(response, status="Downloading", id="aa", progressDetail=detail)
        fake.image = True

    async with serving(f"{tmp_path}/s") as fake:
        fake.pull = good
        told: list[str] = []
        await pull(fake, told)
        assert told == ["x/y:1", "0 of 1 layers, 1 of 4 MiB; aa: Downloading", "x/y:1"]


@pytest.mark.parametrize(
    ("image", "pulled"),
    [
        ("host:5000/x", "host:5000/x:latest"),
        ("x/y:1", "x/y:1"),
        ("x@sha256:0", "x@sha256:0"),
    ],
)
async def test_one_tag_is_pulled_and_has_to_be_there(
    tmp_path: Path, image: str, pulled: str
) -> None:
    """Without a tag Docker pulls them all; that a pull ends well does not say what it got."""
    async with serving(f"{tmp_path}/s") as fake:
        engine = Engine(fake.socket)
        try:
            with pytest.raises(SpawnError, match="does not have it"):
                await have_image(engine, image, CONFIG, {}, lambda *_: None)
        finally:
            await engine.close()
        assert fake.pulled == [pulled]


async def test_a_cancelled_pull_closes_its_stream(tmp_path: Path) -> None:
    """DKR-3."""

    async def endless(response: web.StreamResponse) -> None:
        while True:
            await progress(response, status="Downloading", id="aa")
            await asyncio.sleep(0.02)

    async with serving(f"{tmp_path}/s") as fake:
        fake.pull = endless
        with anyio.move_on_after(0.3):
            await pull(fake, [])
        with anyio.fail_after(1):
            await fake.pull_ended.wait()


async def test_a_pull_has_its_own_budget(tmp_path: Path) -> None:
    """DKR-3."""

    async def slow(response: web.StreamResponse) -> None:
        await asyncio.sleep(30)

    async with serving(f"{tmp_path}/s") as fake:
        fake.pull = slow
        with pytest.raises(SpawnError, match="could not be pulled within"):
            await pull(fake, [], DockerConfig(pull_timeout_ms=200))


@pytest.mark.parametrize(("policy", "pulls"), [("missing", 0), ("always", 1)])
async def test_an_image_that_is_there(
    tmp_path: Path, policy: Literal["missing", "always"], pulls: int
) -> None:
    async with serving(f"{tmp_path}/s") as fake:
        fake.image = True
        await pull(fake, [], DockerConfig(pull=policy))
        assert len(fake.asked("images/create")) == pulls


async def test_a_pull_says_who_asks(tmp_path: Path) -> None:
    login = base64.b64encode(b"me:s3cret").decode()
    (tmp_path / "config.json").write_text(
        json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": login}}})
    )
    async with serving(f"{tmp_path}/s") as fake:
        fake.image = True
        engine = Engine(fake.socket)
        try:
            env = {"DOCKER_CONFIG": str(tmp_path)}
            told: list[str] = []
            always = DockerConfig(pull="always")
            await have_image(engine, "x/y:1", always, env, lambda _, detail: told.append(detail))
        finally:
            await engine.close()
        [auth] = fake.auths
        assert auth is not None
        assert json.loads(base64.urlsafe_b64decode(auth))["password"] == "s3cret"
        assert "s3cret" not in "".join(told)


async def test_a_container_of_another_launch_is_not_touched(tmp_path: Path) -> None:
    """Whatever the record says: the container itself names the launch that it was made for."""
    async with serving(f"{tmp_path}/s") as fake:
        fake.body, fake.status = {"Labels": {NONCE: "another"}}, "running"
        engine = Engine(fake.socket)
        running = DockerRunning(Watch(engine, REF, "0"), 1, lambda: None)
        try:
            with pytest.raises(NotOursError):
                await running.stop(StopStyle(grace_ms=1_000), 100)
            assert await running.liveness() == "unknown"
        finally:
            running.close()
            await engine.close()
        assert fake.signals == []
        assert fake.asked("DELETE") == []


async def test_a_slow_stop_and_a_slow_removal_are_one_stop(tmp_path: Path) -> None:
    """DKR-2: TERM in vain, KILL after the grace, and 409 while the removal goes on."""
    async with serving(f"{tmp_path}/s") as fake:
        fake.body, fake.status, fake.deaf = {"Labels": {NONCE: "0"}}, "running", True
        fake.busy_removals = 5
        engine = Engine(fake.socket)
        running = DockerRunning(Watch(engine, REF, "0"), 10, lambda: None)
        try:
            began = anyio.current_time()
            receipt = await running.stop(StopStyle(grace_ms=1_000), 300)
            assert anyio.current_time() - began >= 0.3 + DYING_S
            again = await running.stop(StopStyle(grace_ms=1_000), 300)
        finally:
            running.close()
            await engine.close()
        assert (receipt.survivors, again.survivors) == ((), ())
        assert [it.pid for it in receipt.killed] == [0]
        assert fake.signals == ["SIGTERM", "SIGKILL"]
        assert fake.body is None


async def test_a_stop_whose_container_engine_goes_away_says_that_it_began(tmp_path: Path) -> None:
    """After TERM "not touched" would be untrue; before it, it is the truth."""
    async with serving(f"{tmp_path}/s") as fake:
        fake.body, fake.status, fake.deaf = {"Labels": {NONCE: "0"}}, "running", True
        fake.falls_silent = True
        engine = Engine(fake.socket)
        running = DockerRunning(Watch(engine, REF, "0"), 1, lambda: None)
        untouched = DockerRunning(Watch(engine, REF, "0"), 1, lambda: None)
        try:
            for _ in range(2):
                with pytest.raises(StopUnfinishedError):
                    await running.stop(StopStyle(grace_ms=1_000), 200)
            with pytest.raises(CannotTellError):
                await untouched.stop(StopStyle(grace_ms=1_000), 200)
            fake.falls_silent = False
            fake.died.set()
            fake.status = "exited"
            assert (await running.stop(StopStyle(grace_ms=1_000), 200)).survivors == ()
        finally:
            running.close()
            untouched.close()
            await engine.close()
        assert fake.signals == ["SIGTERM"]
        assert fake.body is None


async def test_a_removal_in_progress_is_waited_for(tmp_path: Path) -> None:
    """DKR-2."""
    async with serving(f"{tmp_path}/s") as fake:
        fake.body, fake.busy_removals = {"Labels": {}}, 3
        engine = Engine(fake.socket)
        try:
            assert await remove(engine, ID)
        finally:
            await engine.close()
        assert len(fake.asked("DELETE")) == 4


async def test_a_wait_that_ends_without_an_answer_is_no_exit(tmp_path: Path) -> None:
    async with serving(f"{tmp_path}/s") as fake:
        fake.body, fake.status, fake.empty_waits = {"Labels": {NONCE: "0"}}, "running", 3
        engine = Engine(fake.socket)
        try:
            with anyio.fail_after(10):
                exit_ = await Watch(engine, REF, "0").until_dead()
        finally:
            await engine.close()
        assert exit_.exit_code == 0
        assert len(fake.asked("wait")) == 4


async def test_the_engine_is_gone_between_create_and_start(tmp_path: Path) -> None:
    """Whether it started is not known: it is asked again, which changes nothing where it did."""
    async with serving(f"{tmp_path}/s") as fake:
        fake.body, fake.dropped_starts = {"Labels": {NONCE: "0"}}, 1
        engine = Engine(fake.socket)
        watch = Watch(engine, REF, "0")
        try:
            gate = GatedContainer(
                engine, REF, plan_of(()), lambda: DockerRunning(watch, 1, lambda: None)
            )
            running = await gate.open()
            assert await running.liveness() == "alive"
        finally:
            await engine.close()
        assert len(fake.asked("start")) == 2


async def test_a_launch_that_is_cancelled_while_its_container_is_created(tmp_path: Path) -> None:
    """Nobody would know its id: so the answer is waited for, and what it names is removed."""
    async with serving(f"{tmp_path}/s") as fake:
        fake.image = True
        fake.creates.clear()
        launcher = DockerLauncher(DockerConfig(socket=fake.socket), "0", {})
        ticket = SpawnTicket(name="x", nonce="0", log_path=f"{tmp_path}/log", env={})
        plan = replace(plan_of(()), image="x/y:1")
        ended = anyio.Event()

        async def prepare(scope: anyio.CancelScope) -> None:
            with scope:
                await launcher.prepare(plan, ticket)
            ended.set()

        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(launcher.run)
            tasks.start_soon(prepare, scope)
            with anyio.fail_after(10):
                await until(lambda: bool(fake.asked("containers/create")))
                scope.cancel()
                await anyio.sleep(0.1)
                assert not ended.is_set()
                fake.creates.set()
                await ended.wait()
            tasks.cancel_scope.cancel()
        assert fake.body is None
        assert len(fake.asked("DELETE")) == 1


@pytest.mark.parametrize(
    ("code", "reason"), [(127, "binary-missing"), (126, "not-executable"), (0, None)]
)
async def test_a_start_that_is_refused_names_its_reason(
    tmp_path: Path, code: int, reason: str | None
) -> None:
    """In the words and with the code of Docker 20.10, which tries the program itself where no init
    process does.
    """
    words = (
        "failed to create shim task: OCI runtime create failed: runc create failed: unable to "
        'start container process: exec: "/no/such": stat /no/such: no such file or directory: '
        "unknown"
    )
    async with serving(f"{tmp_path}/s") as fake:
        fake.body, fake.no_start, fake.exit_code = {"Labels": {NONCE: "0"}}, words, code
        engine = Engine(fake.socket)
        try:
            with pytest.raises(SpawnError) as failed:
                await GatedContainer(engine, REF, plan_of(()), lambda: pytest.fail("none")).open()
        finally:
            await engine.close()
        assert (failed.value.reason, failed.value.remains) == (reason, False)
        assert "/no/such" in failed.value.detail
        assert fake.body is None


def plan_of(ids: tuple[str, ...]) -> LaunchPlan:
    request = DeviceRequest(driver="", device_ids=ids, capabilities=(("gpu",),))
    return LaunchPlan(
        kind="docker",
        argv=(),
        env={},
        ports=(),
        mounts=(),
        devices=ids,
        health=HealthCheck(path="/", ready_deadline_ms=1, interval_ms=1),
        device_requests=(request,) if ids else (),
    )


@pytest.mark.parametrize("ids", [(), ("GPU-a",), ("GPU-a", "GPU-b")])
def test_devices_are_asked_for_by_id_and_without_a_count(ids: tuple[str, ...]) -> None:
    ticket = SpawnTicket(name="x", nonce="0", log_path="/l", env={})
    asked = create_body(plan_of(ids), ticket, {}, CONFIG)["HostConfig"].get("DeviceRequests", [])
    expected = {"Driver": "", "DeviceIDs": list(ids), "Capabilities": [["gpu"]]}
    assert asked == ([expected] if ids else [])


async def test_where_nobody_answers_the_system_s_reason_is_told(tmp_path: Path) -> None:
    """ "Permission denied" has another cure than an engine that does not run."""
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(f"{tmp_path}/s")
        for name, reason in (("s", "Connection refused"), ("none", "No such file or directory")):
            engine = Engine(f"{tmp_path}/{name}")
            try:
                with pytest.raises(EngineDown, match=f"{tmp_path}/{name}: {reason}$"):
                    await engine.inspect("x")
            finally:
                await engine.close()
