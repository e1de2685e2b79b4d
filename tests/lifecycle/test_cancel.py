"""LIF-1: a launch can be ended in every phase, for good, and only that launch."""

import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from supervisor.contracts.event import Launching, Ready, Reserved, Spawned
from supervisor.contracts.failure import Cancelled, LaunchFailure
from supervisor.contracts.instance import InstanceView
from supervisor.lifecycle.errors import LaunchRefused, NoSuchInstance
from tests.lifecycle.house import A, Home, Steps, free_port, opened, until

pytestmark = pytest.mark.anyio


class Pending:
    """A launch in a task of its own, and what became of it."""

    def __init__(self, home: Home, name: str = "x", **members: Any) -> None:
        self.home, self.name, self.members = home, name, members
        self.failure: LaunchFailure | None = None
        self.view: InstanceView | None = None

    async def run(self) -> None:
        try:
            self.view = await self.home.launch(self.name, **self.members)
        except LaunchRefused as refused:
            self.failure = refused.failure


@pytest.mark.parametrize(
    ("verb", "after"),
    [("cancel", 0), ("cancel", 0.05), ("cancel", 0.5), ("cancel", 2), ("stop", 0), ("stop", 0.5)],
)
async def test_a_loading_engine_is_cancelled(home: Home, verb: str, after: float) -> None:
    port = free_port()
    pending = Pending(home, binary=home.stub(load=120), port=port, devices=(A,))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pending.run)
        await home.seen(Reserved)
        await anyio.sleep(after)
        began = time.monotonic()
        view = await (home.cancel() if verb == "cancel" else home.stop())
        assert time.monotonic() - began < 5
        assert (view.state, view.failure) == ("exited", Cancelled())
    assert pending.failure == Cancelled()
    home.told_once(Cancelled())
    await home.again(port=port, devices=(A,))


@pytest.mark.parametrize("step", ["prepared", "gated", "recorded", "spawned"])
@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_cancel_between_any_two_steps(tmp_path: Path, step: str, turns: int) -> None:
    """At the gate it counts most: what was half let through must be found and ended too."""
    steps = Steps()
    async with opened(tmp_path, at=steps) as home, anyio.create_task_group() as tasks:

        async def cancel() -> None:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            began = time.monotonic()
            assert (await home.cancel()).state == "exited"
            assert time.monotonic() - began < 5

        def act() -> None:
            tasks.start_soon(cancel)

        steps.then[step] = act
        port = free_port()
        failure = await home.refused(binary=home.stub(load=120), port=port, devices=(A,))
        assert failure == Cancelled()
        await home.again(port=port, devices=(A,))


async def test_a_sweep_of_cancels_over_the_start(home: Home) -> None:
    """Through the first 60 ms, the moments around the exec among them."""
    binary = home.stub(load=120)
    for after_ms in range(0, 60, 2):
        name = f"x{after_ms}"
        pending = Pending(home, name, binary=binary, devices=(A,))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pending.run)
            await home.seen(Reserved, name)
            await anyio.sleep(after_ms / 1000)
            assert (await home.cancel(name)).failure == Cancelled()
        assert pending.failure == Cancelled()
        home.told_once(Cancelled(), name)
        assert await home.holders() == {}
    await home.nothing_left()


async def test_two_cancels_and_a_stop_have_one_outcome(home: Home) -> None:
    pending = Pending(home, binary=home.stub(load=120, term_delay=0.2))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pending.run)
        await home.seen(Spawned)
        for verb in (home.cancel, home.cancel, home.stop):
            tasks.start_soon(verb)
    assert pending.failure == Cancelled()
    home.told_once(Cancelled())


async def test_a_late_cancel_is_bound_to_its_own_launch(home: Home) -> None:
    pending = Pending(home, binary=home.stub(load=120))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pending.run)
        first = (await home.seen(Spawned)).nonce or ""
        assert first
        await home.cancel(nonce=first)
    view = await home.launch()
    with pytest.raises(NoSuchInstance):
        await home.cancel(nonce=first)
    with pytest.raises(NoSuchInstance):
        await home.supervisor.stop("x", nonce=first, grace_ms=0)
    now = home.supervisor.get("x")
    assert (now.state, now.record.nonce) == ("ready", view.record.nonce)
    await home.stop()


async def test_a_cancel_of_what_is_ready_or_over_does_nothing(home: Home) -> None:
    await home.launch()
    assert (await home.cancel()).state == "ready"
    assert home.story()[-1] == "ready"
    await home.stop()
    before = home.story()
    assert (await home.cancel()).state == "exited"
    assert home.story() == before


async def test_a_caller_that_goes_away_cancels_nothing(home: Home) -> None:
    with anyio.CancelScope() as scope:
        home.listeners.append(
            lambda event: scope.cancel() if isinstance(event, Launching) else None
        )
        await home.launch(binary=home.stub(load=0.2))
    assert scope.cancelled_caught
    await home.seen(Ready)
    await home.stop()


async def test_without_wait_the_reply_comes_with_the_reservation(home: Home) -> None:
    view = await home.launch(binary=home.stub(load=0.3), wait=False, devices=(A,))
    assert view.state in ("reserving", "starting")
    assert home.record_on_disk().nonce == view.record.nonce
    assert await home.holders() == {A: ["x"]}
    await home.seen(Ready)
    await home.stop()


async def test_a_deaf_engine_is_cancelled_after_the_grace(home: Home, tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    pending = Pending(home, binary=home.stub(load=120, on_term="ignore", up=str(deaf)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pending.run)
        await until(deaf.exists)
        began = time.monotonic()
        await home.supervisor.cancel("x", nonce=None, grace_ms=400)
        assert 0.35 < time.monotonic() - began < 3
    home.told_once(Cancelled())
