"""A defect in one instance's task: it is told, touches nobody else, and the task goes on from the
record. What the record knows decides: a started engine is kept, a half started one is undone.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.contracts.event import Exited, LaunchFailed, Ready, Stopped, TaskCrashed
from supervisor.contracts.failure import ExitedEarly, SpawnFailed
from tests.lifecycle.house import A, B, Home, Steps, opened, pid_of
from tests.lifecycle.memory import MemoryLauncher

pytestmark = pytest.mark.anyio


class Defect(Exception):
    """Not one that anybody expects."""


def crash(text: str = "a defect") -> Callable[[], None]:
    def act() -> None:
        raise Defect(text)

    return act


async def with_bystander(home: Home) -> Callable[[], None]:
    """Start another instance; the returned check says that nothing happened to it."""
    before = await home.launch("bystander", devices=(B,))

    def check() -> None:
        now = home.supervisor.get("bystander")
        assert (now.state, pid_of(now)) == ("ready", pid_of(before))
        assert home.story("bystander") == ["reserved", "launching", "spawned", "ready"]

    return check


@pytest.mark.parametrize("step", ["prepared", "gated", "recorded"])
async def test_a_crash_before_the_engine_runs_ends_the_launch(tmp_path: Path, step: str) -> None:
    steps = Steps()
    marker = tmp_path / "ran"
    async with opened(tmp_path, at=steps) as home:
        check = await with_bystander(home)
        steps.then[step] = crash()
        failure = await home.refused(binary=home.stub(up=str(marker)), devices=(A,), crashes=True)
        assert isinstance(failure, SpawnFailed)
        assert not marker.exists()
        [told] = home.of(TaskCrashed)
        assert (told.instance, told.task) == ("x", "instance:x")
        assert "a defect" in told.error
        check()
        await home.stop("bystander")
        await home.again(devices=(A,))


async def test_what_may_have_started_is_looked_for_with_its_log(tmp_path: Path) -> None:
    """By whose lock those are found whom nothing else tells."""
    steps, launcher = Steps(), MemoryLauncher()
    async with opened(tmp_path, at=steps, launcher=launcher) as home:
        steps.then["recorded"] = crash()
        await home.refused(devices=(A,), crashes=True)
        assert launcher.attached == [home.supervisor.log_path("x")]


@pytest.mark.parametrize("step", ["spawned", "ready"])
async def test_a_crash_once_the_engine_runs_keeps_it(tmp_path: Path, step: str) -> None:
    """The caller of the launch gets its answer, and the engine is the same."""
    steps = Steps()
    async with opened(tmp_path, at=steps) as home:
        check = await with_bystander(home)
        steps.then[step] = crash()
        view = await home.launch(binary=home.stub(load=0.2), devices=(A,))
        assert view.state == "ready"
        assert len(home.of(TaskCrashed, "x")) == len(home.of(Ready, "x")) == 1
        assert home.of(LaunchFailed) == []
        assert await home.holders() == {A: ["x"], B: ["bystander"]}
        check()
        assert home.record_on_disk().ref == view.record.ref
        await home.stop()
        await home.stop("bystander")


async def test_a_crash_in_a_stop_does_not_lose_the_stop(tmp_path: Path) -> None:
    steps = Steps()
    async with opened(tmp_path, at=steps) as home:
        check = await with_bystander(home)
        await home.launch(devices=(A,))
        steps.then["stopping"] = crash()
        assert (await home.stop()).state == "exited"
        assert len(home.of(TaskCrashed)) == len(home.of(Stopped)) == 1
        check()
        await home.stop("bystander")


async def test_a_crash_at_the_end_of_a_stop_tells_the_end_once(tmp_path: Path) -> None:
    steps = Steps()
    async with opened(tmp_path, at=steps) as home:
        await home.launch(devices=(A,))
        steps.then["ending"] = crash()
        view = await home.stop()
        assert (view.state, view.failure) == ("exited", None)
        assert len(home.of(TaskCrashed)) == 1
        assert home.of(LaunchFailed) == []
        await home.again(devices=(A,))


async def test_a_crash_at_the_end_of_a_failure_keeps_its_cause(tmp_path: Path) -> None:
    """The reply is still what the event said."""
    steps = Steps()
    async with opened(tmp_path, at=steps) as home:
        steps.then["ending"] = crash()
        failure = await home.refused(
            binary=home.stub(load=60, exit_after=0.1, exit_code=5), devices=(A,), crashes=True
        )
        assert isinstance(failure, ExitedEarly)
        assert failure.exit_code == 5
        assert home.supervisor.get("x").failure == failure
        await home.again(devices=(A,))


async def test_a_crash_at_the_end_of_an_exit_tells_it_once(tmp_path: Path) -> None:
    steps = Steps()
    async with opened(tmp_path, at=steps) as home:
        await home.launch(binary=home.stub(exit_after=0.4, exit_code=5), devices=(A,))
        steps.then["ending"] = crash()
        await home.seen(Exited)
        view = await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert view.exit
        assert view.exit.exit_code == 5
        assert len(home.of(Exited)) == 1
        assert home.of(LaunchFailed) == []


async def test_several_crashes_in_a_row_are_survived(tmp_path: Path) -> None:
    steps = Steps()
    async with opened(tmp_path, at=steps) as home:
        await home.launch(devices=(A,))

        def again() -> None:
            steps.then["stopping"] = crash()
            raise Defect("the first")

        steps.then["stopping"] = again
        assert (await home.stop()).state == "exited"
        assert [it.error.rpartition(": ")[2] for it in home.of(TaskCrashed)] == [
            "the first",
            "a defect",
        ]


async def test_a_crash_tells_no_secret(tmp_path: Path) -> None:
    """ARG-4: an exception's text may quote anything."""
    steps = Steps()
    async with opened(tmp_path, at=steps) as home:
        secret = "s3cr3t-value-of-a-token"
        steps.then["spawned"] = crash(f"cannot use {secret}")
        await home.launch(env={"HF_TOKEN": secret})
        [told] = home.of(TaskCrashed)
        assert "cannot use" in told.error
        assert secret not in told.error
        await home.stop()
