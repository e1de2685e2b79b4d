"""Devices of records that cannot be read: whose engine cannot be told to be gone keeps them."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.contracts.event import RecordQuarantined, Released
from supervisor.contracts.failure import NoCapacity
from tests.lifecycle.house import A, B, Home, Steps, is_running, kill_leftovers, opened, pid_of
from tests.lifecycle.test_adoption import nonces_in

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_engine_outlives_its_test(tmp_path: Path) -> Iterator[None]:
    yield
    kill_leftovers(nonces_in(tmp_path))


def spoil(home: Home, change: Callable[[bytes], bytes] = lambda record: record) -> None:
    """Make the record one that cannot be read, although it still says most of what it said."""
    path = home.state_dir / "instances" / "x.json"
    path.write_bytes(change(path.read_bytes()).rstrip()[:-1])


def without_cgroup(record: bytes) -> bytes:
    return re.sub(rb'"cgroup":"[^"]*"', b'"cgroup":null', record)


async def test_an_engine_that_wiped_its_marks_out_keeps_its_devices(tmp_path: Path) -> None:
    """Its record names the nonce, and nobody shows it: that proves nothing."""
    async with opened(tmp_path, clean=False) as home:
        knobs = {"children": "detached+deaf+erased", "children_file": str(tmp_path / "children")}
        view = await home.launch(binary=home.stub(**knobs), devices=(A,))
    spoil(home, without_cgroup)
    kill(pid_of(view))
    pid = int((tmp_path / "children").read_text())
    try:
        async with opened(tmp_path, clean=False) as home:
            await home.seen(RecordQuarantined)
            assert is_running(pid)
            assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
            await home.launch("z", devices=(B,))
            await home.stop("z")
            leases = {it.device: it for it in (await home.supervisor.leases()).leases}
            assert [it.name for it in leases[A].withheld] == ["x"]
            assert (await home.supervisor.release("x")).devices == (A,)
            assert home.of(Released)[0].devices == (A,)
            await home.launch("y", devices=(A,))
            await home.stop("y")
    finally:
        kill(pid)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def test_what_was_never_started_or_before_a_reboot_holds_nothing(tmp_path: Path) -> None:
    steps = Steps()
    async with opened(tmp_path, at=steps, clean=False) as home:
        steps.then["prepared"] = home.detach
        await home.launch(wait=False, devices=(A,))
    spoil(home)
    async with opened(tmp_path, clean=False) as home:
        await home.seen(RecordQuarantined)
        view = await home.launch("y", devices=(A,))
    (home.state_dir / "quarantine" / "x.json").unlink()
    kill(pid_of(view))
    path = home.state_dir / "instances" / "y.json"
    path.rename(path.with_name("x.json"))
    spoil(home, lambda it: re.sub(rb'"bootId":"[^"]*"', b'"bootId":"another"', without_cgroup(it)))
    async with opened(tmp_path, clean=False) as home:
        await home.seen(RecordQuarantined)
        await home.launch("z", devices=(A,))
        await home.stop("z")
