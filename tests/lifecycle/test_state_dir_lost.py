"""What somebody does to the state directory while the daemon runs."""

import errno
import shutil
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.event import Stopped, Warning_
from supervisor.contracts.failure import NoCapacity, SpawnFailed
from supervisor.lifecycle import pause, records
from supervisor.lifecycle.errors import NotDone
from tests.lifecycle.house import A, B, Home, opened, pid_of, until

pytestmark = pytest.mark.anyio


class Refusing:
    """A disk that refuses a step for as long as it is told to."""

    def __init__(self) -> None:
        self.steps: set[str] = set()

    def __call__(self, step: str) -> None:
        if step in self.steps:
            raise OSError(errno.EROFS, "Read-only file system")


def instances(home: Home) -> Path:
    return home.state_dir / "instances"


async def test_a_launch_makes_the_folder_again(home: Home) -> None:
    for folder in (instances(home), home.state_dir / "tombstones"):
        shutil.rmtree(folder)
    view = await home.launch(devices=(A,))
    assert home.record_on_disk().ref == view.record.ref
    assert instances(home).stat().st_mode & 0o777 == 0o700
    await home.stop()
    await home.again(devices=(A,))


async def test_a_folder_that_cannot_be_made_again_fails_the_launch_and_no_later_one(
    home: Home,
) -> None:
    shutil.rmtree(instances(home))
    instances(home).write_text("in the way")
    marker = home.folder / "ran"
    failure = await home.refused(binary=home.stub(up=str(marker)), devices=(A,))
    assert isinstance(failure, SpawnFailed)
    assert not marker.exists()
    instances(home).unlink()
    await home.launch(devices=(A,))
    await home.stop()


async def test_records_of_running_engines_are_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "ROUND_S", 0.05)
    async with opened(tmp_path, clean=False) as home:
        views = {name: await home.launch(name, devices=(device,)) for name, device in _TWO}
        shutil.rmtree(instances(home))
        for name, _ in _TWO:
            await home.seen(Warning_, name)
        await until(lambda: len(list(instances(home).iterdir())) == 2)
        assert {it.code for it in home.of(Warning_)} == {"record-missing"}
        (instances(home) / "a.json").unlink()
        await home.seen(Warning_, "a", times=2)
    async with opened(tmp_path) as home:
        for name, _ in _TWO:
            assert pid_of(home.supervisor.get(name)) == pid_of(views[name])
            await home.stop(name)


_TWO = (("a", A), ("b", B))


@pytest.mark.parametrize("ending", ["stop", "exit"])
async def test_a_record_that_cannot_be_removed_is_still_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(pause, "BURY_AGAIN_S", 0.1)
    disk = Refusing()
    async with opened(tmp_path, store_step=disk) as home:
        binary = home.stub() if ending == "stop" else home.stub(exit_after=0.4)
        await home.launch(binary=binary, devices=(A,))
        disk.steps = {"create", "unlink"}
        if ending == "stop":
            with pytest.raises(NotDone, match="cannot be removed"):
                await home.stop()
            assert len(home.of(Stopped)) == 1
        told = [await home.seen(Warning_, "x")]
        await until(lambda: any("cannot be removed" in it.detail for it in home.of(Warning_)))
        assert told[0].code == "record-write-failed"
        assert await home.holders() == {A: ["x"]}
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        before = len(home.of(Warning_))
        await anyio.sleep(0.4)
        assert len(home.of(Warning_)) == before, "said once, however often it is tried"
        disk.steps = set()
        if ending == "stop":
            assert (await home.stop()).state == "exited"
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=10_000)
        await home.nothing_left()
        await home.again(devices=(A,))
