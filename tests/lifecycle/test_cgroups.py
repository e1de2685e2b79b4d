"""Engines in cgroups through a whole supervisor: in the record, adopted by it, and lost without."""

# Short looks at cgroups and records of the test, which block nothing for long.
# ruff: noqa: ASYNC110, ASYNC240

import os
import signal
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.event import Adopted, Released, Swept, Warning_
from supervisor.contracts.failure import AlreadyRunning, NoCapacity
from supervisor.launchers.process import Cgroups, ProcessLauncher
from supervisor.launchers.process.cgroup import Cgroup
from tests.lifecycle.house import SOON, A, B, Home, opened, pid_of
from tests.parts.cgroups import end

pytestmark = pytest.mark.anyio


def launcher(root: Path) -> ProcessLauncher:
    return ProcessLauncher(cgroups=Cgroups(root))


def cgroup_of(home: Home, name: str = "x") -> Cgroup:
    """By the record on disk."""
    record = home.record_on_disk(name)
    assert record.supervision
    assert record.supervision.cgroup
    return Cgroup(Path(record.supervision.cgroup))


async def test_the_record_names_the_cgroup_and_a_stop_removes_it(
    tmp_path: Path, cgroup_root: Path
) -> None:
    async with opened(tmp_path, launcher=launcher(cgroup_root)) as home:
        view = await home.launch(devices=(A,))
        cgroup = cgroup_of(home)
        assert cgroup.path.name == f"x-{view.record.nonce[:12]}-{pid_of(view)}"
        assert cgroup.pids() == {pid_of(view)}
        await home.stop()
        assert not cgroup.path.exists()
        await home.again(devices=(A,))
        await home.refused(command=("/bin/false",), devices=(A,))
        assert not cgroup_root.exists()


async def test_a_restart_gets_a_cgroup_of_its_own(tmp_path: Path, cgroup_root: Path) -> None:
    async with opened(tmp_path, launcher=launcher(cgroup_root)) as home:
        await home.launch()
        first = cgroup_of(home)
        with anyio.fail_after(SOON):
            await home.supervisor.restart("x", nonce=None, grace_ms=None)
        second = cgroup_of(home)
        assert first != second
        assert not first.path.exists()
        assert second.populated()
        await home.stop()


async def test_a_new_daemon_adopts_with_all_that_escaped(tmp_path: Path, cgroup_root: Path) -> None:
    """ORP-1: the leader is killed while no daemon runs, and its worker left every other trace."""
    async with opened(tmp_path, launcher=launcher(cgroup_root), clean=False) as home:
        binary = home.stub(children="session+detached+deaf+erased")
        view = await home.launch(devices=(A,), binary=binary)
        cgroup = cgroup_of(home)
        with anyio.fail_after(SOON):
            while len(cgroup.pids()) < 2:
                await anyio.sleep(0.01)
    (worker,) = cgroup.pids() - {pid_of(view)}
    os.kill(pid_of(view), signal.SIGKILL)
    async with opened(tmp_path, launcher=launcher(cgroup_root)) as home:
        home.nonces.add(view.record.nonce)
        await home.seen(Adopted)
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        told = await home.seen(Swept)
        assert [member.pid for member in told.members] == [worker]
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=10_000)
        assert not cgroup.path.exists()
        await home.again(devices=(A,))


async def test_an_engine_without_a_record_keeps_its_devices(
    tmp_path: Path, cgroup_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody removed the file. The engine is told of, held for, and never touched."""
    monkeypatch.setattr("supervisor.lifecycle.quarantine.RECHECK_S", 0.05)
    async with opened(tmp_path, launcher=launcher(cgroup_root), clean=False) as home:
        await home.launch(devices=(A,))
        cgroup = cgroup_of(home)
        Path(home.state_dir, "instances", "x.json").unlink()
    async with opened(tmp_path, launcher=launcher(cgroup_root)) as home:
        warning = await home.seen(Warning_)
        assert (warning.instance, warning.code) == ("x", "engine-lost")
        assert str(cgroup) in warning.detail
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        assert isinstance(await home.refused("x", devices=(B,)), AlreadyRunning)
        await home.launch("y", devices=(B,))
        await home.stop("y")
        assert cgroup.populated()
        end(cgroup.path)
        with anyio.fail_after(SOON):
            while home.supervisor._quarantine.bars("x"):
                await anyio.sleep(0.02)
        await home.again("x", devices=(A,))
        assert (await home.supervisor.release("x")).devices == ()
        assert home.of(Released)


async def test_one_that_tells_no_devices_keeps_all_of_them(
    tmp_path: Path, cgroup_root: Path
) -> None:
    """Its environment is erased: it may use any device that nobody claims."""
    async with opened(tmp_path, launcher=launcher(cgroup_root), clean=False) as home:
        binary = home.stub(children="session+detached+deaf+erased")
        view = await home.launch(devices=(A,), binary=binary)
        cgroup = cgroup_of(home)
        os.kill(pid_of(view), signal.SIGSTOP)
        Path(home.state_dir, "instances", "x.json").unlink()
    os.kill(pid_of(view), signal.SIGKILL)
    async with opened(tmp_path, launcher=launcher(cgroup_root)) as home:
        await home.seen(Warning_)
        for device in (A, B):
            assert isinstance(await home.refused("y", devices=(device,)), NoCapacity)
        end(cgroup.path)
        await home.supervisor.release("x")
        await home.again("x", devices=(A,))
