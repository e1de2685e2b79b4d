"""Devices of records that cannot be read: whose engine cannot be told to be gone keeps them."""

# Short looks at the test's own files, which block nothing for long.

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.device import DeviceProcess
from supervisor.contracts.event import RecordQuarantined, Released, Warning_
from supervisor.contracts.failure import AlreadyRunning, NoCapacity
from supervisor.failures import sentence
from supervisor.launchers.base import Bearer, CannotTellError, Exit, Trace
from supervisor.lifecycle import quarantine
from supervisor.lifecycle.errors import CannotTell, NoSuchInstance, StillAlive
from tests.lifecycle.house import (
    A,
    B,
    Home,
    Steps,
    is_running,
    kill_leftovers,
    opened,
    pid_of,
    until,
)
from tests.lifecycle.memory import LEADER, MemoryLauncher
from tests.lifecycle.test_adoption import nonces_in
from tests.lifecycle.test_cgroups import cgroup_of
from tests.lifecycle.test_cgroups import launcher as in_cgroups
from tests.lifecycle.test_strangers import Driver, host
from tests.parts.cgroups import end

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
            with pytest.raises(StillAlive, match=rf"{pid} .*the log.*--force"):
                await home.supervisor.release("x")
            assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
            kill(pid)
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


async def test_a_release_frees_nothing_while_its_cgroup_is_populated(
    tmp_path: Path, cgroup_root: Path
) -> None:
    """By the user's own command the next engine would land on the same card."""
    async with opened(tmp_path, launcher=in_cgroups(cgroup_root), clean=False) as home:
        view = await home.launch(devices=(A,))
    place = cgroup_of(home).path
    spoil(home, lambda record: record[: record.index(b'"startedAt"')] + b" ")
    async with opened(tmp_path, launcher=in_cgroups(cgroup_root)) as home:
        await home.seen(RecordQuarantined)
        with pytest.raises(StillAlive, match=rf"{pid_of(view)} .*cgroup.kill.*--force"):
            await home.supervisor.release("x")
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        kill(pid_of(view))
        await until(lambda: not is_running(pid_of(view)))
        await home.supervisor.release("x")
        await home.again("y", devices=(A,))
    end(place)  # the next start would remove it


async def test_a_cgroup_elsewhere_is_looked_at_where_the_record_says(
    tmp_path: Path, cgroup_root: Path
) -> None:
    """A daemon that gets no cgroups now still finds the one that an earlier one made."""
    async with opened(tmp_path, launcher=in_cgroups(cgroup_root), clean=False) as home:
        knobs = {"children": "detached+deaf+erased", "children_file": str(tmp_path / "children")}
        view = await home.launch(devices=(A,), binary=home.stub(**knobs))
    place = cgroup_of(home).path
    spoil(home)
    kill(pid_of(view))
    pid = int((tmp_path / "children").read_text())
    async with opened(tmp_path) as home:
        await home.seen(RecordQuarantined)
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        with pytest.raises(StillAlive, match=rf"{pid} .*cgroup.kill"):
            await home.supervisor.release("x")
        kill(pid)
        await until(lambda: not is_running(pid))
        await home.supervisor.release("x")
    end(place)


async def test_force_frees_what_lives_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        view = await home.launch(devices=(A,))
    spoil(home)
    async with opened(tmp_path, clean=False) as home:
        await home.seen(RecordQuarantined)
        assert (await home.supervisor.release("x", force=True)).devices == (A,)
        assert is_running(pid_of(view)), "nobody is ended by it"
        [told] = [it for it in home.of(Warning_) if it.code == "released-alive"]
        assert str(pid_of(view)) in told.detail
        await home.launch("y", devices=(A,))
        await home.stop("y")
    kill(pid_of(view))


async def test_a_stranger_on_its_device_may_be_its_engine(tmp_path: Path) -> None:
    driver = Driver()
    async with host(tmp_path, driver, clean=False) as home:
        view = await home.launch(devices=(A,))
    spoil(home, without_cgroup)
    kill(pid_of(view))
    driver.on[A] = [DeviceProcess(pid=os.getpid())]
    async with host(tmp_path, driver) as home:
        await home.seen(RecordQuarantined)
        with pytest.raises(StillAlive, match=rf"{os.getpid()}.* computes on {A}"):
            await home.supervisor.release("x")
        driver.on[A] = []
        await home.supervisor.release("x")
        await home.again("y", devices=(A,))


async def test_who_cannot_tell_is_no_proof_that_nobody_lives(tmp_path: Path) -> None:
    asked = Asked()
    async with opened(tmp_path, launcher=asked, clean=False) as home:
        await home.launch(devices=(A,))
    spoil(home)
    asked.answer = CannotTellError("the other side is away")
    async with opened(tmp_path, launcher=asked) as home:
        await home.seen(RecordQuarantined)
        with pytest.raises(CannotTell, match=r"the other side is away.*--force"):
            await home.supervisor.release("x")
        await home.supervisor.release("x", force=True)
    finish(asked)


def finish(launcher: MemoryLauncher) -> None:
    for engine in launcher.engines:
        engine.die(Exit(0, None))


class Asked(MemoryLauncher):
    """Answers for the lost as it is told to."""

    answer: tuple[Bearer, ...] | Exception = ()

    async def bearers(self, trace: Trace) -> tuple[Bearer, ...]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_two_releases_at_once_free_once(tmp_path: Path) -> None:
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher, clean=False) as home:
        await home.launch(devices=(A,))
    spoil(home)
    async with opened(tmp_path, launcher=launcher) as home:
        await home.seen(RecordQuarantined)
        outcomes: list[object] = []

        async def release() -> None:
            try:
                outcomes.append((await home.supervisor.release("x")).devices)
            except NoSuchInstance as error:
                outcomes.append(type(error))

        async with anyio.create_task_group() as both:
            both.start_soon(release)
            both.start_soon(release)
        assert outcomes == [(A,), NoSuchInstance]
        assert len(home.of(Released)) == 1
    finish(launcher)


async def test_every_refusal_about_its_name_says_what_helps(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        view = await home.launch(devices=(A,))
    spoil(home)
    async with opened(tmp_path, clean=False) as home:
        await home.seen(RecordQuarantined)
        failure = await home.refused("x", devices=(B,))
        assert isinstance(failure, AlreadyRunning)
        assert "enginectl release x" in sentence(failure)
        for call in (home.stop, home.cancel):
            with pytest.raises(NoSuchInstance, match="enginectl release x"):
                await call("x")
        with pytest.raises(NoSuchInstance, match="enginectl release x"):
            home.supervisor.get("x")
        [told] = home.supervisor.unreadable()
        assert (told.name, told.devices, told.pids) == ("x", (A,), (pid_of(view),))


async def test_a_holder_is_named_once_however_many_files_it_left(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        await home.launch(devices=(A,))
    spoil(home)
    path = home.state_dir / "instances" / "x.json"
    (home.state_dir / "quarantine" / "x.json").write_bytes(path.read_bytes())
    async with opened(tmp_path, clean=False) as home:
        await home.seen(RecordQuarantined, times=2)
        leases = {it.device: it for it in (await home.supervisor.leases()).leases}
        assert [it.name for it in leases[A].withheld] == ["x"]


async def test_who_can_be_asked_is_asked_while_another_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container engine that is away for good keeps no card whose process has ended."""
    monkeypatch.setattr(quarantine, "RECHECK_S", 0.02)
    asked, away = Asked(), Away()
    async with opened(tmp_path, launcher=asked, clean=False) as home:
        await home.launch(devices=(A,))
    spoil(home, lambda it: it.replace(b'"cgroup":null', b'"cgroup":"/sys/fs/cgroup/x"'))
    asked.answer = (Bearer(process=LEADER, devices=(A,)),)
    async with opened(tmp_path, launcher=asked, others={"docker": away}) as home:
        await home.seen(RecordQuarantined)
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        asked.answer = ()
        await until(lambda: not home.supervisor.unreadable())
        await home.again("y", devices=(A,))
    finish(asked)


class Away(MemoryLauncher):
    """Its other side never answers."""

    async def bearers(self, trace: Trace) -> tuple[Bearer, ...]:
        raise CannotTellError("nobody answers")

    async def strays(self, known: object) -> tuple[()]:
        raise CannotTellError("nobody answers")


async def test_a_container_engine_that_is_gone_is_no_answer_about_its_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They live on without it, and a record says that it was one."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    launcher = MemoryLauncher()
    async with opened(tmp_path, launcher=launcher, clean=False) as home:
        await home.launch(devices=(A,))
    spoil(home, lambda it: it.replace(b'"runtime":"process"', b'"runtime":"docker"'))
    async with opened(tmp_path, launcher=launcher, containers=True) as home:
        await home.seen(RecordQuarantined)
        with pytest.raises(CannotTell, match=r"none\.sock"):
            await home.supervisor.release("x")
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        await home.supervisor.release("x", force=True)
    finish(launcher)


async def test_a_cgroup_that_cannot_be_its_own_proves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        view = await home.launch(devices=(A,))
    kill(pid_of(view))
    spoil(home, lambda it: re.sub(rb'"cgroup":[^,}]*', b'"cgroup":"/sys/fs/cgroup/a-b-1"', it))
    async with opened(tmp_path) as home:
        await home.seen(RecordQuarantined)
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        with pytest.raises(CannotTell, match="none of its own"):
            await home.supervisor.release("x")
        await home.supervisor.release("x", force=True)
