"""The end of an engine: by itself, by a stop, with and without a tree that outlives it."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.contracts.event import (
    Exited,
    LaunchFailed,
    Ready,
    StopIncomplete,
    Stopped,
    Stopping,
    Swept,
)
from supervisor.contracts.failure import ExitedEarly, NoCapacity
from supervisor.lifecycle.errors import NoSuchInstance
from tests.lifecycle.house import A, B, Home, free_port, is_running, opened, pid_of, tune, until

pytestmark = pytest.mark.anyio

GRACE_S = 0.6


def children(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


@pytest.mark.parametrize(
    ("knobs", "code", "name"),
    [
        ({"exit_code": 7}, 7, None),
        ({"exit_code": 0}, 0, None),
        ({"exit_by": "SIGKILL"}, None, "SIGKILL"),
    ],
    ids=["7", "0", "SIGKILL"],
)
async def test_a_ready_engine_that_ends(
    home: Home, knobs: dict[str, Any], code: int | None, name: str | None
) -> None:
    view = await home.launch(binary=home.stub(exit_after=0.5, **knobs), devices=(A,))
    exited = await home.seen(Exited)
    assert (exited.exit_code, exited.signal) == (code, name)
    assert "GET /health" in exited.log_tail
    assert 400 <= exited.uptime_ms < 5_000
    assert exited.nonce == view.record.nonce
    with anyio.fail_after(5):
        ended = await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=None)
    assert (ended.state, ended.failure) == ("exited", None)
    assert ended.exit
    assert (ended.exit.exit_code, ended.exit.signal) == (code, name)
    assert home.story() == ["reserved", "launching", "spawned", "ready", "exited"]
    await home.again(devices=(A,))


@pytest.mark.parametrize("kind", ["session", "detached", "session+erased"])
async def test_the_device_is_held_until_the_last_of_the_tree_is_gone(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """ORP-1: the main process is killed, a deaf child lives on with the card."""
    tune(monkeypatch, EARLY_EXIT_GRACE_MS=GRACE_S * 1000)
    pids = tmp_path / "children"
    binary = home.stub(children=f"{kind}+deaf", children_file=str(pids))
    view = await home.launch(binary=binary, devices=(A,))
    [child] = children(pids)
    began = time.monotonic()
    os.kill(pid_of(view), signal.SIGKILL)
    await home.seen(Exited)
    assert time.monotonic() - began < GRACE_S / 2
    assert home.supervisor.get("x").state == "unhealthy"
    assert is_running(child)
    assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
    swept = await home.seen(Swept)
    assert [it.pid for it in swept.members] == [child]
    assert swept.devices == (A,)
    assert GRACE_S * 0.9 < time.monotonic() - began < GRACE_S + 3
    assert not is_running(child)
    with anyio.fail_after(5):
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=None)
    assert home.story()[-2:] == ["exited", "swept"]
    await home.again("y", devices=(A,))


@pytest.mark.parametrize("leader", ["exit", "ignore"])
@pytest.mark.parametrize("kind", ["session", "detached", "session+erased"])
async def test_a_stop_ends_when_the_tree_is_gone(
    home: Home, tmp_path: Path, leader: str, kind: str
) -> None:
    """ORP-2: the escalation hangs on the tree, not on a main process that obeys."""
    pids = tmp_path / "children"
    binary = home.stub(
        children=f"{kind}+deaf,session,{kind}", children_file=str(pids), on_term=leader
    )
    view = await home.launch(binary=binary, devices=(A,))
    tree = [pid_of(view), *children(pids)]
    began = time.monotonic()
    stopped = await home.stop(grace_ms=int(GRACE_S * 1000))
    assert GRACE_S * 0.9 < time.monotonic() - began < GRACE_S + 3
    assert stopped.state == "exited"
    assert [pid for pid in tree if is_running(pid)] == []
    [told] = home.of(Stopped)
    assert told.devices == (A,)
    killed = {it.pid for it in told.killed}
    assert tree[1] in killed
    assert (tree[0] in killed) == (leader == "ignore")
    assert (told.exit_code, told.signal) == ((0, None) if leader == "exit" else (None, "SIGKILL"))
    assert home.of(Exited) == []
    await home.again(devices=(A,))


async def test_an_obedient_tree_is_stopped_at_once(home: Home, tmp_path: Path) -> None:
    pids = tmp_path / "children"
    binary = home.stub(children="session,detached", children_file=str(pids))
    await home.launch(binary=binary)
    began = time.monotonic()
    await home.stop()
    assert time.monotonic() - began < 3
    [told] = home.of(Stopped)
    assert told.killed == ()
    assert not [pid for pid in children(pids) if is_running(pid)]


async def test_a_second_stop_with_less_grace_shortens_the_first(home: Home) -> None:
    """Somebody who changed their mind need not wait, nor need a drain."""
    for second in ("stop", "drain"):
        await home.launch(binary=home.stub(on_term="ignore"), devices=(A,))
        began = time.monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(home.stop, "x", 60_000)
            await home.seen(Stopping, times=1 if second == "stop" else 2)
            await anyio.sleep(0.1)
            until = home.record_on_disk().supervision.grace_monotonic_ns  # type: ignore[union-attr]
            assert until
            if second == "stop":
                await home.stop(grace_ms=200)
            else:
                assert (await home.supervisor.drain(grace_ms=200)).stopped == ("x",)
        assert 0.3 <= time.monotonic() - began < 10
    assert len(home.of(Stopping)) == len(home.of(Stopped)) == 2


async def test_a_stop_hurries_an_unwinding_and_a_sweep(home: Home, tmp_path: Path) -> None:
    pids = tmp_path / "children"
    binary = home.stub(children="session+deaf", children_file=str(pids))
    view = await home.launch(binary=binary, devices=(A,))
    os.kill(pid_of(view), signal.SIGKILL)
    await home.seen(Exited)
    began = time.monotonic()
    assert (await home.stop(grace_ms=0)).state == "exited"
    deaf = tmp_path / "deaf"
    binary = home.stub(load=60, on_term="ignore", up=str(deaf))
    await home.launch(binary=binary, wait=False)
    await until(deaf.exists)
    async with anyio.create_task_group() as group:
        group.start_soon(home.cancel)
        await anyio.sleep(0.3)
        await home.stop(grace_ms=0)
    assert time.monotonic() - began < 4


async def test_a_stop_without_grace_kills(home: Home) -> None:
    await home.launch(binary=home.stub(on_term="ignore"))
    began = time.monotonic()
    await home.stop(grace_ms=0)
    assert time.monotonic() - began < 2
    assert home.of(Stopped)[0].signal == "SIGKILL"


async def test_an_early_exit_is_told_although_a_child_holds_its_output(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ORP-6: nobody waits for the end of a stream that a sleeper keeps open."""
    tune(monkeypatch, EARLY_EXIT_GRACE_MS=GRACE_S * 1000)
    pids = tmp_path / "children"
    binary = home.stub(
        children="session+deaf", children_file=str(pids), load=60, exit_after=0.2, exit_code=7
    )
    began = time.monotonic()
    failure = await home.refused(binary=binary, devices=(A,))
    assert time.monotonic() - began < 3
    assert isinstance(failure, ExitedEarly)
    assert failure.exit_code == 7
    assert home.story() == ["reserved", "launching", "spawned", "launch-failed", "swept"]
    assert not is_running(children(pids)[0])
    await home.again(devices=(A,))


async def test_a_death_by_a_signal_of_its_own(home: Home) -> None:
    engine = home.folder / "engine"
    engine.write_text("#!/bin/sh\necho last words\nulimit -c 0\nkill -SEGV $$\n")
    engine.chmod(0o755)
    failure = await home.refused(binary=str(engine))
    assert failure == ExitedEarly(exit_code=None, signal="SIGSEGV", log_tail="last words\n")


async def test_a_stop_or_a_crash_of_one_touches_no_other(home: Home) -> None:
    """ORP-4."""
    bystander = await home.launch("bystander", devices=(B,))
    await home.launch("a", devices=(A,))
    await home.stop("a")
    await home.launch("b", binary=home.stub(exit_after=0.3, exit_by="SIGKILL"), devices=(A,))
    await home.seen(Exited, "b")
    await home.supervisor.wait("b", nonce=None, until="exited", timeout_ms=5_000)
    now = home.supervisor.get("bystander")
    assert (now.state, now.record) == ("ready", bystander.record)
    assert home.story("bystander")[-1] == "ready"
    await home.stop("bystander")


async def test_a_stop_while_the_last_ones_are_swept_returns_with_them_gone(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tune(monkeypatch, EARLY_EXIT_GRACE_MS=GRACE_S * 1000)
    pids = tmp_path / "children"
    binary = home.stub(children="session+deaf", children_file=str(pids))
    view = await home.launch(binary=binary, devices=(A,))
    os.kill(pid_of(view), signal.SIGKILL)
    await home.seen(Exited)
    assert (await home.stop()).state == "exited"
    assert not is_running(children(pids)[0])
    await home.nothing_left()


async def test_many_launches_and_stops_leave_no_descriptor(home: Home) -> None:
    """PRT-3; the fixture counts them."""
    binary = home.stub()
    port = free_port()
    for _ in range(25):
        await home.launch(binary=binary, port=port, devices=(A,))
        await home.stop()
    assert len(home.of(Ready)) == len(home.of(Stopped)) == 25
    assert not home.of(LaunchFailed)
    assert not home.of(StopIncomplete)


async def test_only_so_many_tombstones_are_kept(tmp_path: Path) -> None:
    async with opened(tmp_path, tombstones=2) as home:
        for name in ("a", "b", "c"):
            await home.refused(name, model_path="/nowhere")
        assert [it.record.name for it in home.supervisor.list(ended=True)] == ["b", "c"]
        with pytest.raises(NoSuchInstance):
            home.supervisor.get("a")
        stones = (home.state_dir / "tombstones").iterdir()
        assert sorted(it.name for it in stones) == ["b.json", "c.json"]
