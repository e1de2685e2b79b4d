"""What survives KILL, is not ours, or cannot be judged: nothing of it is freed, or touched.

Told by an in-memory launcher, for no real process does these things when asked.
"""

from pathlib import Path
from typing import Literal

import anyio
import pytest

from supervisor.contracts.event import (
    Adopted,
    Event,
    Exited,
    LaunchFailed,
    Ready,
    Reaped,
    Restarting,
    Spawned,
    StopIncomplete,
    Stopped,
    Stopping,
    Warning_,
)
from supervisor.contracts.failure import Cancelled, NoCapacity, UnhealthyTimeout
from supervisor.launchers.base import Exit
from supervisor.lifecycle import errors
from supervisor.lifecycle.errors import CannotTell, LaunchRefused, LifecycleError, NotOurs
from tests.lifecycle.house import A, Home, opened, tune
from tests.lifecycle.memory import STUCK, MemoryLauncher

pytestmark = pytest.mark.anyio

FAST = {"STUCK_RECHECK_S": 0.05, "UNKNOWN_RECHECK_S": 0.05}


async def refused_stop(home: Home) -> LifecycleError:
    with anyio.fail_after(5), pytest.raises(LifecycleError) as caught:
        await home.supervisor.stop("x", nonce=None, grace_ms=0)
    return caught.value


async def test_a_stop_that_cannot_end_it_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The devices stay held, and the name with them, until the last one is gone."""
    tune(monkeypatch, **FAST)
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher) as home:
        await home.launch(devices=(A,))
        [engine] = launcher.engines
        engine.on_stop = engine.leave_one_stuck
        error = await refused_stop(home)
        assert isinstance(error, errors.StopIncomplete)
        assert str(STUCK.pid) in str(error)
        [told] = home.of(StopIncomplete)
        assert (told.survivors, told.devices) == ((STUCK,), (A,))
        assert home.of(Stopped) == []
        assert home.supervisor.get("x").state == "unhealthy"
        assert home.record_on_disk().devices == (A,)
        assert await home.holders() == {A: ["x"]}
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        assert isinstance(await refused_stop(home), errors.StopIncomplete)
        engine.members = ()
        stopped = await home.seen(Stopped)
        assert stopped.devices == (A,)
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert len(home.of(StopIncomplete)) == 1
        await home.again(devices=(A,))


async def test_an_engine_that_ends_and_leaves_one_that_will_not_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, **FAST)
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher) as home:
        await home.launch(devices=(A,))
        [engine] = launcher.engines
        engine.on_stop = engine.leave_one_stuck
        engine.die(Exit(1, None), STUCK)
        await home.seen(StopIncomplete)
        assert await home.holders() == {A: ["x"]}
        assert isinstance(await refused_stop(home), errors.StopIncomplete)
        engine.members = ()
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert home.story() == [
            *("reserved", "launching", "spawned", "ready", "exited", "stop-incomplete")
        ]


async def test_a_failed_launch_that_cannot_be_undone_says_so_and_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is not kept waiting for a process that may never go; it is told all there is."""
    tune(monkeypatch, **FAST)
    launcher = MemoryLauncher(listens=False)
    async with opened(tmp_path, launcher=launcher) as home:

        def leave_one_stuck(event: Event) -> None:
            if isinstance(event, Spawned):
                launcher.engines[0].on_stop = launcher.engines[0].leave_one_stuck

        home.listeners.append(leave_one_stuck)
        failure = await home.refused(devices=(A,), ready_deadline_ms=200)
        assert isinstance(failure, UnhealthyTimeout)
        assert len(home.of(StopIncomplete)) == 1
        assert await home.holders() == {A: ["x"]}
        with anyio.fail_after(5), pytest.raises(LaunchRefused) as caught:
            await home.supervisor.wait("x", nonce=None, until="ready", timeout_ms=1_000)
        assert caught.value.failure == failure
        launcher.engines[0].members = ()
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert len(home.of(LaunchFailed)) == 1
        assert home.supervisor.get("x").failure == failure


@pytest.mark.parametrize("answer", ["be_somebody_else", "be_unknowable"])
async def test_what_is_not_known_to_be_ours_is_not_stopped(tmp_path: Path, answer: str) -> None:
    """Refused with its own error, still listed, still holding; and it can be stopped later."""
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher) as home:
        await home.launch(devices=(A,))
        [engine] = launcher.engines
        engine.on_stop = getattr(engine, answer)
        expected = NotOurs if answer == "be_somebody_else" else CannotTell
        assert type(await refused_stop(home)) is expected
        assert type(await refused_stop(home)) is expected
        view = home.supervisor.get("x")
        assert (view.state, view.intent) == ("ready", "running")
        record = home.record_on_disk()
        assert record.supervision
        assert record.supervision.intent == "running"
        assert await home.holders() == {A: ["x"]}
        assert home.of(Stopped) == []
        assert {it.code for it in home.of(Warning_)} == {"identity-unknown"}
        engine.on_stop = engine.obey
        await home.stop()
        assert len(home.of(Stopped)) == 1


async def test_an_exit_whose_tree_cannot_be_judged_is_told_once_and_frees_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, **FAST)
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher) as home:
        await home.launch(devices=(A,))
        [engine] = launcher.engines
        engine.on_stop = engine.be_unknowable
        engine.die(Exit(1, None), STUCK)
        await home.seen(Exited)
        await anyio.sleep(0.4)
        assert len(home.of(Exited)) == 1
        assert len(home.of(Warning_)) == 1
        assert await home.holders() == {A: ["x"]}
        engine.on_stop = engine.obey
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert home.story()[-2:] == ["exited", "warning"]


async def test_a_handle_that_cannot_be_judged_at_start_keeps_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, **FAST)
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher, clean=False) as home:
        view = await home.launch(devices=(A,))
    [engine] = launcher.engines
    engine.unjudged = True
    async with opened(tmp_path, launcher=launcher) as home:
        await home.seen(Warning_)
        await anyio.sleep(0.4)
        assert len(home.of(Warning_)) == 1
        assert home.supervisor.get("x").record == view.record
        assert await home.holders() == {A: ["x"]}
        engine.on_stop = engine.be_unknowable
        assert isinstance(await refused_stop(home), CannotTell)
        assert home.supervisor.get("x").record == view.record
        engine.unjudged, engine.on_stop = False, engine.obey
        await home.stop()


async def test_the_grace_of_a_stop_is_the_callers_else_the_engines(tmp_path: Path) -> None:
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher) as home:
        for grace_ms, expected in ((None, 20_000), (1_234, 1_234), (0, 0)):
            await home.launch(binary=home.stub())
            await home.stop(grace_ms=grace_ms)
            assert launcher.engines[-1].graces[0] == expected
            assert home.of(Stopping)[-1].grace_ms == expected


async def test_a_cancel_of_what_cannot_be_judged_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, **FAST)
    launcher = MemoryLauncher(listens=False)
    async with opened(tmp_path, launcher=launcher) as home, anyio.create_task_group() as tasks:

        async def launch() -> None:
            assert await home.refused(devices=(A,)) == Cancelled()

        tasks.start_soon(launch)
        await home.seen(Spawned)
        [engine] = launcher.engines
        engine.on_stop = engine.be_unknowable
        with anyio.fail_after(5), pytest.raises(CannotTell):
            await home.supervisor.cancel("x", nonce=None, grace_ms=0)
        assert await home.holders() == {A: ["x"]}
        assert len(home.of(LaunchFailed)) == 1, "whoever waits for the launch gets an answer"
        engine.on_stop = engine.obey
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)


@pytest.mark.parametrize("verb", ["stop", "restart"])
async def test_a_stop_that_loses_sight_of_its_tree_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Literal["stop", "restart"]
) -> None:
    """TERM was sent: the engine may be on its way out, and must not count as running again."""
    tune(monkeypatch, **FAST)
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher) as home:
        await home.launch(devices=(A,), restart="on-failure")
        [engine] = launcher.engines
        engine.on_stop = engine.be_lost_sight_of
        with anyio.fail_after(5), pytest.raises(errors.StopIncomplete):
            await getattr(home.supervisor, verb)("x", nonce=None, grace_ms=0)
        engine.die(Exit(0, None), STUCK)
        await anyio.sleep(0.3)
        assert len(engine.graces) > 2, "it is tried again"
        record = home.record_on_disk()
        assert record.supervision
        assert record.supervision.intent == "stopping"
        assert await home.holders() == {A: ["x"]}
        assert len(home.of(StopIncomplete)) == 1
        assert not home.of(Stopped) + home.of(Restarting) + home.of(Exited)
        engine.on_stop = engine.obey
        await home.seen(Stopped)
        if verb == "restart":
            await home.seen(Ready, times=2)
            await home.stop()
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert len(home.of(Restarting)) == (verb == "restart")
        assert home.of(Exited) == []


async def test_a_stop_that_a_daemon_began_is_not_taken_back_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record does not say whether the signal went out; so it may have."""
    tune(monkeypatch, **FAST)
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher, clean=False) as home:
        await home.launch(devices=(A,), restart="on-failure")
        [engine] = launcher.engines
        engine.on_stop = engine.be_lost_sight_of
        assert isinstance(await refused_stop(home), errors.StopIncomplete)
    engine.on_stop = engine.be_unknowable
    async with opened(tmp_path, launcher=launcher) as home:
        assert isinstance(await refused_stop(home), errors.StopIncomplete)
        await anyio.sleep(0.3)
        assert home.supervisor.get("x").intent == "stopping"
        assert await home.holders() == {A: ["x"]}
        engine.on_stop = engine.obey
        await home.seen(Stopped)
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)


async def test_who_could_not_be_judged_is_judged_again_after_a_refused_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(monkeypatch, **FAST)
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher, clean=False) as home:
        view = await home.launch(devices=(A,))
    [engine] = launcher.engines
    engine.unjudged, engine.on_stop = True, engine.be_unknowable
    async with opened(tmp_path, launcher=launcher) as home:
        await home.seen(Warning_)
        assert isinstance(await refused_stop(home), CannotTell)
        assert home.of(Adopted) == []
        engine.unjudged = False
        assert (await home.seen(Adopted)).ref == view.record.ref
        assert isinstance(await refused_stop(home), CannotTell)
        await anyio.sleep(0.2)
        assert len(home.of(Adopted)) == 1
        engine.on_stop = engine.obey
        engine.die(Exit(3, None))
        assert (await home.seen(Exited)).exit_code == 3
        assert home.of(Reaped) == []
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
