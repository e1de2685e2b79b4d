"""The supervisor leaves and another one comes: engines and launches go on from their records.

Leaving is the cancellation of the whole task tree, as the daemon does it at SIGTERM. That it
works for a daemon that is killed is shown with real daemons in `tests/daemon`.
"""

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.contracts.event import (
    Adopted,
    LaunchFailed,
    Ready,
    Reaped,
    RecordQuarantined,
    Spawned,
    Stopped,
    Stopping,
    SupervisorStarted,
    Warning_,
)
from supervisor.contracts.failure import (
    AlreadyRunning,
    Cancelled,
    ExitedEarly,
    SpawnFailed,
    UnhealthyTimeout,
)
from supervisor.contracts.instance import ProcessHandle
from supervisor.health import address
from supervisor.instances.files import RecordFiles
from supervisor.lifecycle.errors import LaunchRefused
from tests.lifecycle.house import (
    A,
    Steps,
    free_port,
    is_running,
    kill_leftovers,
    opened,
    pid_of,
    until,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_engine_outlives_its_test(tmp_path: Path) -> Iterator[None]:
    yield
    kill_leftovers(nonces_in(tmp_path))


async def test_a_ready_engine_is_adopted_as_it_is(tmp_path: Path) -> None:
    """ADOPT-1."""
    port = free_port()
    async with opened(tmp_path, clean=False) as home:
        before = await home.launch(devices=(A,), port=port)
    assert is_running(pid_of(before))
    async with opened(tmp_path) as home:
        assert home.of(SupervisorStarted)[0].found == 1
        adopted = await home.seen(Adopted)
        assert (adopted.ref, adopted.devices, adopted.port) == (before.record.ref, (A,), port)
        now = home.supervisor.get("x")
        assert (now.state, now.record) == ("ready", before.record)
        assert now.log_path == before.log_path
        assert await home.holders() == {A: ["x"]}
        assert await home.refused() == AlreadyRunning(name="x")
        assert home.of(Ready) == []
        await home.stop()
        assert not is_running(pid_of(before))
        [told] = home.of(Stopped)
        assert (told.devices, told.exit_code) == ((A,), 0)
        await home.again(devices=(A,), port=port)


async def test_a_launch_goes_on_under_the_next_supervisor(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        await home.launch(binary=home.stub(load=1.0), wait=False, devices=(A,))
        pid = pid_in(await home.seen(Spawned))
        assert not {"launch-failed", "stopping"} & {*home.story()}
    assert is_running(pid)
    async with opened(tmp_path) as home:
        ready = await home.seen(Ready)
        assert 1_000 <= ready.waited_ms < 5_000
        assert [it for it in home.story() if it != "warning"] == ["adopted", "ready"]
        assert pid_of(home.supervisor.get("x")) == pid
        await home.stop()


async def test_a_resolver_that_fails_at_the_adoption_ends_no_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails for a second, as resolvers do when a machine starts; the engine loads for longer."""
    named = {"extra_args": ("--host", "127.1")}  # to the resolver that is a name like any other
    async with opened(tmp_path, clean=False) as home:
        await home.launch(binary=home.stub(load=1.5), wait=False, devices=(A,), **named)
        await home.seen(Spawned)
    resolve, until_s = socket.getaddrinfo, time.monotonic() + 1

    def failing(host: Any, *args: Any, **members: Any) -> Any:
        if host == "127.1" and time.monotonic() < until_s:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return resolve(host, *args, **members)

    monkeypatch.setattr(socket, "getaddrinfo", failing)
    monkeypatch.setattr(address, "AGAIN_S", 0.2)
    async with opened(tmp_path) as home:
        await home.seen(Ready)
        assert [it.code for it in home.of(Warning_)] == ["proof-denied"]
        await home.stop()


async def test_the_deadline_is_the_one_that_was_stored(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        binary = home.stub(health="503")
        await home.launch(binary=binary, wait=False, ready_deadline_ms=900, devices=(A,))
        await home.seen(Spawned)
        began = time.monotonic()
        nonces = set(home.nonces)
    await anyio.sleep(0.4)
    async with opened(tmp_path) as home:
        with pytest.raises(LaunchRefused) as caught:
            await home.supervisor.wait("x", nonce=None, until="ready", timeout_ms=10_000)
        assert 0.8 < time.monotonic() - began < 2.5
        failure = caught.value.failure
        assert isinstance(failure, UnhealthyTimeout)
        assert 900 <= failure.waited_ms < 2_500
        assert [it.nonce for it in home.of(LaunchFailed)] == [*nonces]
        await home.again(devices=(A,))


async def test_one_success_wins_over_a_deadline_that_passed_meanwhile(tmp_path: Path) -> None:
    """CLK-1: nobody asked it while there was nobody to ask."""
    async with opened(tmp_path, clean=False) as home:
        await home.launch(binary=home.stub(load=0.2), wait=False, ready_deadline_ms=300)
        await home.seen(Spawned)
    await anyio.sleep(0.5)
    async with opened(tmp_path) as home:
        await home.seen(Ready)
        assert home.of(LaunchFailed) == []
        await home.stop()


async def test_a_dead_launch_is_told_as_failed_and_a_dead_engine_as_reaped(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        ready = await home.launch("ready", devices=(A,))
        await home.launch("loading", binary=home.stub(load=60), wait=False)
        loading = await home.seen(Spawned, "loading")
    for pid in (pid_of(ready), pid_in(loading)):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_running(pid_of(ready)) and not is_running(pid_in(loading)))
    async with opened(tmp_path) as home:
        reaped = await home.seen(Reaped)
        assert (reaped.instance, reaped.devices) == ("ready", (A,))
        failed = await home.seen(LaunchFailed)
        assert failed.instance == "loading"
        assert isinstance(failed.failure, ExitedEarly)
        assert failed.failure.exit_code is None
        for name in ("ready", "loading"):
            await home.supervisor.wait(name, nonce=None, until="exited", timeout_ms=5_000)
        assert home.supervisor.get("loading").failure == failed.failure
        assert home.supervisor.get("ready").failure is None


async def test_a_record_without_a_handle_is_unwound_with_one_failure(tmp_path: Path) -> None:
    steps = Steps()
    marker = tmp_path / "ran"
    async with opened(tmp_path, at=steps, clean=False) as home:
        steps.then["prepared"] = home.detach
        await home.launch(binary=home.stub(up=str(marker)), wait=False, devices=(A,))
        await anyio.sleep_forever()
    nonces = nonces_in(tmp_path)
    async with opened(tmp_path) as home:
        failed = await home.seen(LaunchFailed)
        assert isinstance(failed.failure, SpawnFailed)
        assert {failed.nonce} == nonces
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert home.story() == ["launch-failed"]
        assert not marker.exists()
        await home.again(devices=(A,))


async def test_a_stop_is_finished_by_the_next_supervisor(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        view = await home.launch(binary=home.stub(term_delay=0.6), devices=(A,))
        home.start(home.stop)
        await home.seen(Stopping)
        await anyio.sleep(0.1)
    assert is_running(pid_of(view))
    async with opened(tmp_path) as home:
        await home.seen(Stopped)
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert not is_running(pid_of(view))


async def test_a_stop_whose_engine_died_meanwhile_is_finished_too(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        view = await home.launch(binary=home.stub(on_term="ignore"), devices=(A,))
        home.start(home.stop)
        await home.seen(Stopping)
        await anyio.sleep(0.1)
    os.kill(pid_of(view), signal.SIGKILL)
    await until(lambda: not is_running(pid_of(view)))
    async with opened(tmp_path) as home:
        await home.seen(Stopped)
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert not {"task-crashed", "launch-failed"} & {*home.story()}


async def test_an_unwinding_is_finished_and_told_with_its_own_cause(tmp_path: Path) -> None:
    """The next supervisor ends what the first had begun to end, and says why it was begun."""
    async with opened(tmp_path, clean=False) as home:
        binary = home.stub(health="503", term_delay=0.6)
        await home.launch(binary=binary, wait=False, ready_deadline_ms=200, devices=(A,))
        await until(lambda: home.supervisor.get("x").intent == "stopping")
        assert home.of(LaunchFailed) == []
    async with opened(tmp_path) as home:
        failed = await home.seen(LaunchFailed)
        assert isinstance(failed.failure, UnhealthyTimeout)
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)
        assert home.supervisor.get("x").failure == failed.failure
        assert len(home.of(LaunchFailed)) == 1


async def test_a_cancel_that_was_not_finished_is(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        await home.launch(binary=home.stub(load=60, term_delay=0.6), wait=False)
        await home.seen(Spawned)
        await anyio.sleep(0.2)
        home.start(home.cancel)
        await until(lambda: home.supervisor.get("x").intent == "stopping")
    async with opened(tmp_path) as home:
        assert (await home.seen(LaunchFailed)).failure == Cancelled()
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=5_000)


async def test_records_that_cannot_be_read_cost_nobody_else(tmp_path: Path) -> None:
    """STA-1."""
    async with opened(tmp_path, clean=False) as home:
        good = await home.launch("good", devices=(A,))
        whole = RecordFiles(home.state_dir).record_path("good").read_bytes()
    folder = home.state_dir / "instances"
    (folder / "empty.json").write_bytes(b"")
    (folder / "zeroes.json").write_bytes(bytes(1_500))
    (folder / "half.json").write_bytes(whole[: len(whole) // 2])
    (folder / "folder.json").mkdir()
    (folder / ".left.json.tmp").write_bytes(whole)
    bad = {"empty", "zeroes", "half", "folder"}
    async with opened(tmp_path, clean=False) as home:
        await home.seen(Adopted, "good")
        await home.seen(RecordQuarantined, times=len(bad))
        assert home.supervisor.get("good").record == good.record
        assert {it.instance for it in home.of(RecordQuarantined)} == bad
        assert len(home.of(RecordQuarantined)) == len(bad)
        assert sorted(it.name for it in folder.iterdir()) == ["good.json"]
        await home.stop("good")


def pid_in(spawned: Spawned) -> int:
    assert isinstance(spawned.ref, ProcessHandle)
    return spawned.ref.pid


def nonces_in(folder: Path) -> set[str]:
    found = set()
    for path in (folder / "state").glob("*/*.json"):
        if path.is_file():
            record = path.read_bytes()
            found |= {it.decode() for it in re.findall(rb'"nonce":"([0-9a-f]{32})"', record)}
    return found
