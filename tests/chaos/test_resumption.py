"""What the next supervisor makes of an act that the last one was at: found by chaos, kept small."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.contracts.config import Config, DevicesConfig, RestartConfig
from supervisor.contracts.event import LaunchFailed, Restarting, Spawned
from supervisor.contracts.failure import SpawnFailed
from supervisor.contracts.instance import ProcessHandle
from supervisor.launchers.base import Running
from supervisor.launchers.process import ProcessLauncher
from supervisor.lifecycle import inheritance
from tests.lifecycle.house import CARDS, POOL, A, Home, is_running, opened, until

pytestmark = pytest.mark.anyio

LOADS = pytest.mark.parametrize("load", [0.0, 60.0], ids=["ready", "loading"])


class SlowLauncher(ProcessLauncher):
    """Takes its time to say whose process that is."""

    async def attach(self, *args: Any, **members: Any) -> Running:
        await anyio.sleep(0.5)
        return await super().attach(*args, **members)


def recorded(home: Home) -> int:
    """The pid on the disk; 0 while there is none."""
    ref = home.record_on_disk().ref
    return ref.pid if isinstance(ref, ProcessHandle) else 0


def intent(home: Home) -> str:
    supervision = home.record_on_disk().supervision
    return supervision.intent if supervision else ""


@LOADS
async def test_a_stop_that_comes_before_the_adoption_ends_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: float
) -> None:
    """It used to interrupt the attaching, and to free what nobody had got hold of."""
    async with opened(tmp_path, clean=False) as home:
        await home.launch(binary=home.stub(load=load), devices=(A,), wait=load == 0)
        await home.seen(Spawned)
        pid = recorded(home)
    monkeypatch.setattr(inheritance, "FIRST_LOOK_S", 0.01)
    async with opened(tmp_path, launcher=SlowLauncher()) as home:
        assert (await home.stop()).state == "exited"
        assert not is_running(pid)


@LOADS
async def test_the_grace_of_a_stop_goes_on(tmp_path: Path, load: float) -> None:
    """It does not begin anew, nor become the engine's usual one of many seconds."""
    deaf = tmp_path / "deaf"
    async with opened(tmp_path, clean=False) as home:
        binary = home.stub(load=load, on_term="ignore", up=str(deaf))
        await home.launch(binary=binary, devices=(A,), wait=load == 0)
        await until(deaf.exists)
        home.start(partial(home.stop, "x", 800))
        await until(lambda: intent(home) == "stopping")
    began = time.monotonic()
    async with opened(tmp_path) as home:
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=15_000)
        assert time.monotonic() - began < 8


async def test_a_launch_that_could_not_be_reserved_is_not_tried_again(tmp_path: Path) -> None:
    """Without a record there is no lease that could wait, whatever the policy."""
    full = [True]

    def disk(step: str) -> None:
        if step == "write" and full:
            raise OSError(28, "No space left on device")

    restart = RestartConfig(initial_ms=10, max_ms=10)
    config = Config(ports=POOL, devices=DevicesConfig(static=CARDS), restart=restart)
    async with opened(tmp_path, store_step=disk, config=config) as home:
        failure = await home.refused(devices=(A,), restart="on-failure")
        assert isinstance(failure, SpawnFailed)
        assert failure.reason == "disk-full"
        assert home.of(Restarting) == []
        assert len(home.of(LaunchFailed)) == 1
        full.clear()
        await home.again(devices=(A,), restart="on-failure")


async def test_a_stop_in_a_pause_is_durable_before_it_is_told(tmp_path: Path) -> None:
    """A daemon that dies right after ``stopping`` must not bring the engine back."""
    died = anyio.Event()

    def die(step: str) -> None:
        if step == "stopping":
            died.set()
            raise anyio.get_cancelled_exc_class()  # as at the end of the daemon

    config = Config(
        ports=POOL,
        devices=DevicesConfig(static=CARDS),
        restart=RestartConfig(initial_ms=60_000),
    )
    async with opened(tmp_path, at=die, config=config, clean=False) as home:
        binary = home.stub(exit_after=0.01, exit_code=3)
        await home.launch(binary=binary, restart="on-failure", wait=False, devices=(A,))
        await home.seen(Restarting)
        home.start(home.stop)
        await died.wait()
    async with opened(tmp_path, config=config) as home:
        await until(lambda: home.supervisor.list() == ())
        assert home.of(Restarting) == []
        assert home.of(Spawned) == []
