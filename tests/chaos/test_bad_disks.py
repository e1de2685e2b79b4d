"""Bad disks, end to end: what cannot be written down is not begun, and what runs is not touched."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import msgspec
import pytest

from supervisor.client import RpcError
from supervisor.contracts.event import Warning_
from supervisor.contracts.failure import NoCapacity, SpawnFailed
from supervisor.contracts.instance import RECORD_SCHEMA
from supervisor.contracts.rpc import NameParams, StopParams
from supervisor.lifecycle import asking
from tests.chaos import journal
from tests.chaos.nursery import Nursery
from tests.chaos.world import CARDS, World, world
from tests.instances.children import as_nobody, give_to_nobody, on_small_disk
from tests.lifecycle.house import A, B, Home, opened, pid_of
from tests.model.engines import ThoughtLauncher, ThoughtProbe


class Ballast:
    """A file that takes all the space there is."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ballast"

    def fill(self) -> None:
        with suppress(OSError), self.path.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        self.path.unlink()


@contextmanager
def undisturbed(home: Home) -> Iterator[None]:
    """The bystander is the same engine before and after."""
    before = pid_of(home.supervisor.get("bystander"))
    yield
    view = home.supervisor.get("bystander")
    assert (view.state, pid_of(view)) == ("ready", before)


@pytest.mark.parametrize("step", ["reservation", "gated"])
def test_a_launch_on_a_full_disk(tmp_path: Path, step: str) -> None:
    """At each write that comes before the engine: nothing is spawned, and nothing stays."""
    (tmp_path / "state").mkdir()
    ballast = Ballast(tmp_path / "state")

    async def launch() -> None:
        then: dict[str, Callable[[], None]] = {}
        async with opened(tmp_path, at=lambda step: then.pop(step, _nothing)()) as home:
            await home.launch("bystander", devices=(B,))
            if step == "reservation":
                ballast.fill()
            else:
                then[step] = ballast.fill
            marker = tmp_path / "ran"
            with undisturbed(home):
                failure = await home.refused(binary=home.stub(up=str(marker)), devices=(A,))
                assert isinstance(failure, SpawnFailed)
                assert failure.reason == "disk-full"
                assert not marker.exists()
                assert await home.holders() == {B: ["bystander"]}
                ballast.empty()
                await home.launch(devices=(A,))
            await home.stop()
            await home.stop("bystander")

    on_small_disk(tmp_path / "state", "1m", lambda: anyio.run(launch))


def test_what_runs_on_a_full_disk(tmp_path: Path) -> None:
    """It gets ready, it is stopped, and the next supervisor finds what is true."""
    (tmp_path / "state").mkdir()
    ballast = Ballast(tmp_path / "state")

    async def live() -> None:
        def fill(step: str) -> None:
            if step == "spawned" and not ballast.path.exists():
                ballast.fill()

        async with opened(tmp_path, at=fill, clean=False) as home:
            view = await home.launch(devices=(A,))
            assert view.state == "ready"
            assert [it.code for it in home.of(Warning_)] == ["record-write-failed"]
        async with opened(tmp_path) as home:
            with anyio.fail_after(10):
                found = await home.supervisor.wait("x", nonce=None, until="ready", timeout_ms=None)
            assert pid_of(found) == pid_of(view)
            await home.stop()
            await home.nothing_left()
            ballast.empty()
            await home.again(devices=(A,))

    on_small_disk(tmp_path / "state", "1m", lambda: anyio.run(live))


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user who is not root, whom modes bind. Its engines are only thought, for the folder of
    this interpreter may be closed to it; whether one would have been spawned shows all the same.
    """
    monkeypatch.setattr(asking, "Probe", ThoughtProbe)
    launcher = ThoughtLauncher()
    launcher.natures = dict.fromkeys(("bystander", "x"), ("steady", False, False))
    folder = tmp_path / "state" / "instances"
    folder.mkdir(parents=True)
    (tmp_path / "model.gguf").touch()
    give_to_nobody(tmp_path, tmp_path / "model.gguf", tmp_path / "state", folder)

    async def launch() -> None:
        async with opened(tmp_path, launcher=launcher) as home:
            await home.launch("bystander", devices=(B,), binary="/bin/true")
            folder.chmod(0o500)
            with undisturbed(home):
                failure = await home.refused(devices=(A,), binary="/bin/true")
                assert isinstance(failure, SpawnFailed)
                assert failure.reason == "denied"
                assert len(launcher.engines) == 1
                folder.chmod(0o700)
                await home.launch(devices=(A,), binary="/bin/true")
            await home.stop()
            await home.stop("bystander")

    for parent in (tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o011)
    "x".encode("idna")  # which socket calls load when they are first made
    as_nobody(lambda: anyio.run(launch))


def zeroes(path: Path) -> None:
    path.write_bytes(bytes(1500))


def half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def nothing_at_all(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [zeroes, half, nothing_at_all])
def test_a_record_that_was_damaged(
    tmp_path: Path, nursery: Nursery, damage: Callable[[Path], None]
) -> None:
    """Its engine lives on and keeps its device, until it is gone and a person says so (STA-1)."""
    with world(tmp_path, nursery, cards=2) as at:
        at.start()
        with at.client() as client:
            client.launch(at.params("good", devices=(CARDS[0],)))
            client.launch(at.params("bad", devices=(CARDS[1],)))
        main = next(it for it in at.book.mains() if it.name == "bad")
        at.kill()
        damage(at.state_dir / "instances" / "bad.json")
        at.start()
        with at.client() as client:
            assert [(it.record.name, it.state) for it in client.list().instances] == [
                ("good", "ready")
            ]
            assert len(_told(at, "record-quarantined")) == 1
            for name in ("bad", "other"):
                with pytest.raises(RpcError):
                    client.launch(at.params(name, devices=(CARDS[1],)))
            assert main.lives
            at.kill_engine(main)
            client.call("instance.release", NameParams(name="bad"), msgspec.Raw)
            client.launch(at.params("other", devices=(CARDS[1],)))
            for name in ("good", "other"):
                client.stop(StopParams(name=name))
        assert at.book.living() == []


def test_a_record_of_a_newer_daemon_is_left_as_it_is(tmp_path: Path, nursery: Nursery) -> None:
    with world(tmp_path, nursery, cards=1) as at:
        at.start()
        with at.client() as client:
            client.launch(at.params("x", device_count=1))
        at.kill()
        path = at.state_dir / "instances" / "x.json"
        tree = msgspec.json.decode(path.read_bytes())
        tree["supervision"] |= {"schemaVersion": RECORD_SCHEMA + 1, "later": [1]}
        path.write_bytes(msgspec.json.encode(tree))
        before = path.read_bytes()
        at.start()
        with at.client() as client:
            with pytest.raises(RpcError):
                client.stop(StopParams(name="x"))
            with pytest.raises(RpcError) as caught:
                client.launch(at.params("y", device_count=1))
            assert isinstance(caught.value.failure, NoCapacity)
        assert path.read_bytes() == before
        assert at.book.living()


def test_something_foreign_where_a_record_is_to_go(tmp_path: Path, nursery: Nursery) -> None:
    """Nothing is spawned; once it is out of the way the launch works."""
    with world(tmp_path, nursery, cards=1) as at:
        at.start()
        foreign = at.state_dir / "instances" / "x.json"
        foreign.mkdir()
        (foreign / "somebody's").touch()
        with at.client() as client:
            with pytest.raises(RpcError) as caught:
                client.launch(at.params("x", device_count=1))
            assert isinstance(caught.value.failure, SpawnFailed)
            assert at.book.mains() == []
            assert [it.name for it in foreign.iterdir()] == ["somebody's"]
            os.rename(foreign, tmp_path / "aside")
            client.launch(at.params("x", device_count=1))
            client.stop(StopParams(name="x"))
        assert at.settle() == []


def _told(at: World, kind: str) -> list[journal.Line]:
    path = at.log_dir / "events.jsonl"
    return [line for line in journal.lines(path) if line.kind == kind]


def _nothing() -> None:
    pass
