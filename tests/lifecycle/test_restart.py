"""One attempt after another: what is said of each, and what a view says of it."""

import socket
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.config import Config, DevicesConfig, RestartConfig
from supervisor.contracts.event import Exited, LaunchFailed, Ready, Restarting, Stopped
from supervisor.contracts.failure import AlreadyRunning, Cancelled, ExitedEarly, SpawnFailed
from supervisor.lifecycle.errors import LaunchRefused, NoSuchInstance
from tests.lifecycle.house import CARDS, POOL, A, Home, opened

pytestmark = pytest.mark.anyio

QUICK = Config(
    ports=POOL,
    devices=DevicesConfig(static=CARDS),
    restart=RestartConfig(initial_ms=50, max_ms=50, jitter=0, stable_ms=60_000),
)
SLOW = Config(
    ports=POOL,
    devices=DevicesConfig(static=CARDS),
    restart=RestartConfig(initial_ms=60_000, max_ms=60_000, jitter=0),
)


async def restart(home: Home) -> None:
    with anyio.fail_after(20):
        await home.supervisor.restart("x", nonce=None, grace_ms=None)


async def test_a_requested_restart_is_a_launch_of_its_own(home: Home) -> None:
    """Each attempt is told with what nothing else was told with."""
    first = await home.launch(binary=home.stub(), devices=(A,))
    await restart(home)
    second = home.supervisor.get("x")
    assert second.record.nonce != first.record.nonce
    assert second.attempt == 1
    assert home.record_on_disk().nonce == second.record.nonce
    assert home.story(nonce=first.record.nonce)[-2:] == ["stopping", "stopped"]
    assert home.story(nonce=second.record.nonce) == ["restarting", "launching", "spawned", "ready"]
    assert (second.record.port, second.record.devices) == (first.record.port, (A,))
    with pytest.raises(NoSuchInstance):
        await home.supervisor.stop("x", nonce=first.record.nonce, grace_ms=None)
    await home.supervisor.stop("x", nonce=second.record.nonce, grace_ms=None)
    await home.nothing_left()


async def test_a_restart_in_vain_tells_each_failure_with_its_own_nonce(home: Home) -> None:
    binary = home.stub(load=60, exit_after=0.5, exit_code=4)
    await home.launch(binary=binary, wait=False)
    with pytest.raises(LaunchRefused):
        await restart(home)
    failed = home.of(LaunchFailed)
    assert [it.failure for it in failed] == [Cancelled(), home.supervisor.get("x").failure]
    assert len({(it.nonce, it.attempt) for it in failed}) == 2
    assert isinstance(failed[1].failure, ExitedEarly)


async def test_what_is_ready_again_has_no_failure(tmp_path: Path) -> None:
    """The newest one is shown as long as it is the reason for something."""
    marker = tmp_path / "was-here"
    engine = tmp_path / "engine"
    async with opened(tmp_path, config=QUICK) as home:
        again = home.stub()
        engine.write_text(
            f'#!/bin/sh\n[ -e {marker} ] || {{ touch {marker}; exit 3; }}\nexec {again} "$@"\n'
        )
        engine.chmod(0o755)
        view = await home.launch(binary=str(engine), restart="on-failure")
        assert (view.state, view.attempt, view.failure) == ("ready", 2, None)
        assert isinstance(view.first_failure, ExitedEarly)
        assert view.first_failure.exit_code == 3
        await home.stop()
        ended = home.supervisor.get("x")
        assert (ended.state, ended.failure, ended.stop_asked) == ("exited", None, True)


async def test_a_stop_in_a_pause_is_a_stop_and_no_failure(tmp_path: Path) -> None:
    async with opened(tmp_path, config=SLOW) as home:
        await home.launch(binary=home.stub(exit_after=0.3, exit_code=3), restart="on-failure")
        await home.seen(Exited)
        await home.seen(Restarting)
        waiting = home.supervisor.get("x")
        assert isinstance(waiting.failure, ExitedEarly)
        stopped = await home.stop()
        assert (stopped.state, stopped.failure, stopped.stop_asked) == ("exited", None, True)
        assert stopped.first_failure == waiting.failure
        assert len(home.of(Stopped)) == 1
        assert home.supervisor.list(ended=True) == (stopped,)


async def test_an_exit_is_no_stop(home: Home) -> None:
    await home.launch(binary=home.stub(exit_after=0.3, exit_code=0))
    await home.seen(Exited)
    ended = await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
    assert (ended.stop_asked, ended.failure) == (False, None)


async def test_a_refused_duplicate_says_nothing_about_the_one_that_runs(home: Home) -> None:
    view = await home.launch(devices=(A,))
    assert await home.refused() == AlreadyRunning(name="x")
    [refusal] = home.of(LaunchFailed)
    assert refusal.nonce != view.record.nonce
    assert home.supervisor.get("x") == view
    assert home.story(nonce=view.record.nonce)[-1] == "ready"
    assert len(home.of(Ready)) == 1
    await home.stop()


async def test_a_port_of_its_own_that_is_taken_is_not_waited_for(home: Home) -> None:
    """Nobody said that it will be free: a launch that blocks for minutes is no answer."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        failure = await home.refused(port=port, restart="on-failure", devices=(A,))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "port-taken"
    assert home.of(Restarting) == []
