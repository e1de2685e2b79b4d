"""What outlives what: engines the daemon and the container engine, leases both."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.event import (
    Adopted,
    LaunchFailed,
    Ready,
    Reaped,
    Restarting,
    Unhealthy,
    Warning_,
)
from supervisor.launchers.docker import logcopy
from supervisor.lifecycle.errors import CannotTell
from supervisor.logs import series
from supervisor.logs.reading import tail
from tests.launchers.docker.home import OURS, contained, container_of, opened_with
from tests.lifecycle.house import A, tune, until
from tests.parts.dockerd import Dockerd


async def test_a_new_daemon_adopts_it_with_its_log(tmp_path: Path, dockerd: Dockerd) -> None:
    async with opened_with(tmp_path, dockerd, clean=False) as home:
        view = await home.launch(**contained(env={"SAY": "once"}))
        await until(lambda: "serving" in tail(view.log_path or "", 50).lines)
        before = tail(view.log_path or "", 50).lines
        home.detach()
    async with opened_with(tmp_path, dockerd) as home:
        adopted = await home.seen(Adopted)
        assert adopted.ref == view.record.ref
        assert home.supervisor.get("x").state == "ready"
        dockerd.do(container_of(view), "kill?signal=SIGTERM")
        await until(lambda: not home.supervisor.list())
        assert tail(view.log_path or "", 50).lines == (*before, "leaving")
        assert dockerd.containers(OURS) == []
        assert logcopy.POSITION == series.POSITION
        series.remove(view.log_path or "")
        assert not files_beside(view.log_path or "")


async def test_it_ended_while_no_daemon_ran(tmp_path: Path, dockerd: Dockerd) -> None:
    async with opened_with(tmp_path, dockerd, clean=False) as home:
        view = await home.launch(**contained())
        home.detach()
    dockerd.do(container_of(view), "stop?t=5")
    async with opened_with(tmp_path, dockerd) as home:
        assert (await home.seen(Reaped)).exit_code == 0
        await until(lambda: not home.supervisor.list())
        assert dockerd.containers(OURS) == []


async def test_a_record_that_is_lost(tmp_path: Path, dockerd: Dockerd) -> None:
    """The living engine is reported and left alone; a container that never ran is cleared away."""
    async with opened_with(tmp_path, dockerd, clean=False) as home:
        view = await home.launch(**contained())
        home.detach()
    (tmp_path / "state" / "instances" / "x.json").unlink()
    key, _, supervisor = OURS.partition("=")
    marks = {key: supervisor, "engine-supervisor.nonce": "0" * 32}
    created = dockerd.create("never-ran", ["sleep", "1"], marks)
    async with opened_with(tmp_path, dockerd, clean=False) as home:
        warning = await home.seen(Warning_)
        assert (warning.code, warning.instance) == ("engine-lost", "x")
        assert "docker rm -f engine-supervisor-x" in warning.detail
        assert dockerd.inspect(created) is None
        found = dockerd.inspect(container_of(view))
        assert found is not None
        assert found["State"]["Running"]
        home.detach()
    dockerd.remove(container_of(view))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_the_container_engine_is_restarted_in_the_middle(
    tmp_path: Path, dockerd: Dockerd, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cannot tell: the lease stays, no miss counts, nothing is touched; then all goes on."""
    tune(monkeypatch, RELAXED_S=0.1)
    async with opened_with(tmp_path, dockerd) as home:
        view = await home.launch(**contained(devices=(A,)))
        await anyio.to_thread.run_sync(dockerd.end, number)
        await anyio.sleep(1.5)  # fifteen probes
        assert await home.holders() == {A: ["x"]}
        now = home.supervisor.get("x")
        assert (now.state, now.health.misses) == ("ready", 0)
        with pytest.raises(CannotTell):
            await home.stop(grace_ms=100)
        assert await home.holders() == {A: ["x"]}
        await anyio.to_thread.run_sync(dockerd.start)
        await until(lambda: (home.supervisor.get("x").health.last or "").startswith("GET"))
        assert home.of(Unhealthy) == []
        assert home.supervisor.get("x").record.ref == view.record.ref
        assert home.story().count("spawned") == 1
        await home.stop()


async def test_thirty_rounds_leave_nothing(tmp_path: Path, dockerd: Dockerd) -> None:
    async with opened_with(tmp_path, dockerd) as home:
        await home.launch(**contained())
        await home.stop()
        before, descriptors = dockerd.left(), open_descriptors()
        for _ in range(30):
            await home.launch(**contained())
            await home.stop()
        assert dockerd.left() == before
        await until(lambda: open_descriptors() <= descriptors + 1)


def files_beside(log: str) -> list[str]:
    return [it.name for it in Path(log).parent.iterdir() if it.name.startswith(Path(log).name)]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_on_the_hosts_network_it_outlives_the_container_engine(
    tmp_path: Path, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own processes hold the port there, so it is proved and probed without being published."""
    tune(monkeypatch, RELAXED_S=0.1)
    async with opened_with(tmp_path, dockerd, network="host") as home:
        view = await home.launch(**contained())
        found = dockerd.inspect(container_of(view))
        assert found is not None
        assert (found["HostConfig"]["NetworkMode"], found["NetworkSettings"]["Ports"]) == (
            "host",
            {},
        )
        await anyio.to_thread.run_sync(dockerd.end)
        await anyio.sleep(0.5)
        health = home.supervisor.get("x").health
        assert (health.misses, (health.last or "").startswith("GET /health")) == (0, True)
        await anyio.to_thread.run_sync(dockerd.start)
        await home.stop()


async def test_a_policy_does_not_give_up_while_the_container_engine_is_away(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    async with opened_with(tmp_path, dockerd) as home:
        view = await home.launch(**contained(restart="on-failure"))
        dockerd.do(container_of(view), "kill")
        restarting = await home.seen(Restarting)
        assert restarting.reason == "back-off"
        await anyio.to_thread.run_sync(dockerd.end)
        await home.seen(LaunchFailed)
        await anyio.to_thread.run_sync(dockerd.start)
        await home.seen(Ready, times=2)
        assert home.supervisor.get("x").record.runtime == "docker"
        await home.stop()
