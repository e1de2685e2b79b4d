import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from supervisor.contracts.instance import RECORD_SCHEMA, Tombstone
from supervisor.instances.codec import MemberPath, encode_record
from supervisor.instances.durable import StoreError
from supervisor.instances.store import RecordStore
from tests.instances.builders import a_record, a_tombstone
from tests.instances.children import on_small_disk


class Brake:
    """Holds the disk at a step, for the tasks above to run into."""

    def __init__(self) -> None:
        self.at = ""
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self, step: str) -> None:
        if step == self.at:
            self.reached.set()
            assert self.go.wait(10)

    async def until_reached(self) -> None:
        await asyncio.to_thread(self.reached.wait, 10)


@pytest.fixture
def brake() -> Iterator[Brake]:
    brake = Brake()
    yield brake
    brake.go.set()


@pytest.fixture
def store(tmp_path: Path, brake: Brake) -> RecordStore:
    made = RecordStore(tmp_path, tombstones=3, step=brake)
    made.load()
    return made


def port_on_disk(tmp_path: Path) -> int | None:
    path = tmp_path / "instances" / "x.json"
    return msgspec.json.decode(path.read_bytes())["port"] if path.exists() else None


def listed(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


async def test_a_record_is_one_private_file(store: RecordStore, tmp_path: Path) -> None:
    await store.write(a_record("x"))
    path = tmp_path / "instances" / "x.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert RecordStore(tmp_path).load().records == {"x": a_record("x")}
    await store.remove("x")
    await store.remove("x")
    assert RecordStore(tmp_path).load().records == {}


async def test_twins_in_case_are_two(store: RecordStore, tmp_path: Path) -> None:
    await store.write(a_record("Qwen"))
    await store.write(a_record("qwen"))
    assert listed(tmp_path / "instances") == ["Qwen.json", "qwen.json"]


@pytest.mark.parametrize("name", ["../x", "", ".", "a/b", "a\0", "x" * 64])
async def test_a_name_leads_nowhere_else(store: RecordStore, tmp_path: Path, name: str) -> None:
    for change in (
        store.write(a_record(name)),
        store.remove(name),
        store.bury(a_tombstone(a_record(name))),
    ):
        with pytest.raises(ValueError, match="names no instance"):
            await change
    assert listed(tmp_path) == ["instances", "quarantine", "tombstones"]


async def test_members_of_a_newer_version_outlive_our_writes(tmp_path: Path) -> None:
    folder = tmp_path / "instances"
    folder.mkdir()
    unknown: dict[MemberPath, dict[str, Any]] = {(): {"later": 1}, ("supervision",): {"too": [2]}}
    folder.joinpath("x.json").write_bytes(encode_record(a_record("x"), unknown))
    store = RecordStore(tmp_path)
    assert store.load().records == {"x": a_record("x")}
    await store.write(a_record("x", port=21_001))
    await store.write(a_record("x", port=21_002))
    tree = msgspec.json.decode(folder.joinpath("x.json").read_bytes())
    assert (tree["later"], tree["supervision"]["too"], tree["port"]) == (1, [2], 21_002)
    await store.remove("x")
    await store.write(a_record("x", nonce="another launch"))
    assert b"later" not in folder.joinpath("x.json").read_bytes()


async def test_a_newer_schema_is_not_written_but_may_end(tmp_path: Path) -> None:
    folder = tmp_path / "instances"
    folder.mkdir()
    record = a_record("x", schema_version=RECORD_SCHEMA + 1)
    folder.joinpath("x.json").write_bytes(encode_record(record))
    store = RecordStore(tmp_path)
    assert store.load().read_only == {"x"}
    with pytest.raises(StoreError) as caught:
        await store.write(a_record("x"))
    assert caught.value.reason == "newer-schema"
    assert folder.joinpath("x.json").read_bytes() == encode_record(record)
    await store.bury(a_tombstone(record))
    assert listed(folder) == []
    await store.write(a_record("x", nonce="another launch"))


async def test_changes_of_a_name_keep_their_order(
    store: RecordStore, tmp_path: Path, brake: Brake
) -> None:
    brake.at = "rename"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.write, a_record("x", port=1))
        await brake.until_reached()
        for port in range(2, 20):
            tasks.start_soon(store.write, a_record("x", port=port))
        tasks.start_soon(store.remove, "x")
        await asyncio.sleep(0.01)
        assert listed(tmp_path / "instances") == [".x.json.tmp"]
        brake.go.set()
    assert listed(tmp_path / "instances") == []


async def test_names_do_not_wait_for_one_another(
    store: RecordStore, tmp_path: Path, brake: Brake
) -> None:
    brake.at = "rename"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.write, a_record("slow"))
        await brake.until_reached()
        brake.at = ""
        with anyio.fail_after(5):
            await store.write(a_record("quick"))
        assert "quick.json" in listed(tmp_path / "instances")
        brake.go.set()


async def test_nothing_lands_after_the_end(store: RecordStore, tmp_path: Path) -> None:
    record = a_record("x")
    await store.write(record)
    await store.remove("x")
    with pytest.raises(StoreError) as caught:
        await store.write(record)
    assert caught.value.reason == "ended"
    assert listed(tmp_path / "instances") == []
    await store.write(a_record("x", nonce="another launch"))


@pytest.mark.parametrize("way", ["asyncio", "anyio"])
async def test_a_cancelled_write_has_happened_when_the_cancel_is_felt(
    store: RecordStore, tmp_path: Path, brake: Brake, way: str
) -> None:
    brake.at = "rename"
    scope = anyio.CancelScope()

    async def write() -> None:
        with scope:
            await store.write(a_record("x"))

    task = asyncio.create_task(write())
    await brake.until_reached()
    for _ in range(3):  # however impatient
        if way == "anyio":
            scope.cancel()
        else:
            task.cancel()
        await asyncio.sleep(0.005)
        assert not task.done()
    brake.go.set()
    await asyncio.wait([task])
    assert task.cancelled() == (way == "asyncio")  # anyio's is felt at the next checkpoint
    assert listed(tmp_path / "instances") == ["x.json"]


async def test_a_write_that_is_cancelled_in_the_queue_never_happens(
    store: RecordStore, tmp_path: Path, brake: Brake
) -> None:
    brake.at = "rename"
    first = asyncio.create_task(store.write(a_record("x", port=1)))
    await brake.until_reached()
    second = asyncio.create_task(store.write(a_record("x", port=2)))
    await asyncio.sleep(0.005)
    second.cancel()
    await asyncio.wait([second])
    third = asyncio.create_task(store.write(a_record("x", port=3)))
    await asyncio.sleep(0.005)
    assert port_on_disk(tmp_path) is None
    brake.go.set()
    await first
    assert port_on_disk(tmp_path) in (1, 3)
    await third
    assert second.cancelled()
    assert port_on_disk(tmp_path) == 3
    assert store._locks == {}


def test_the_end_of_the_loop_waits_for_the_disk(tmp_path: Path) -> None:
    """``asyncio.run`` cancels every task on its way out; the write is not one of them."""

    def slow(step: str) -> None:
        if step == "rename":
            time.sleep(0.1)

    store = RecordStore(tmp_path, step=slow)
    store.load()

    async def main() -> None:
        asyncio.create_task(store.write(a_record("x"))).add_done_callback(lambda task: None)
        await asyncio.sleep(0.02)

    asyncio.run(main())
    assert listed(tmp_path / "instances") == ["x.json"]


async def test_burying_leaves_a_tombstone_in_the_records_place(
    store: RecordStore, tmp_path: Path
) -> None:
    await store.write(a_record("x"))
    await store.bury(a_tombstone(a_record("x")))
    assert listed(tmp_path / "instances") == []
    assert RecordStore(tmp_path).load().tombstones == {"x": a_tombstone(a_record("x"))}
    with pytest.raises(StoreError):
        await store.write(a_record("x"))
    await store.write(a_record("x", nonce="another launch"))
    assert listed(tmp_path / "tombstones") == []


async def test_a_late_burial_does_not_touch_the_next_launch(
    store: RecordStore, tmp_path: Path
) -> None:
    await store.write(a_record("x"))
    await store.remove("x")
    await store.write(a_record("x", nonce="another launch"))
    await store.bury(a_tombstone(a_record("x")))
    assert listed(tmp_path / "instances") == ["x.json"]
    assert listed(tmp_path / "tombstones") == []


async def test_only_so_many_tombstones_are_kept(store: RecordStore, tmp_path: Path) -> None:
    for number in range(5):
        await store.bury(a_tombstone(a_record(f"n{number}"), f"2026-01-0{9 - number}T00:00:00Z"))
    assert listed(tmp_path / "tombstones") == ["n2.json", "n3.json", "n4.json"]
    fresh = RecordStore(tmp_path, tombstones=2)
    fresh.load()
    await fresh.bury(a_tombstone(a_record("n9")))
    # Across a restart the ends are told apart by their time, which was falling here.
    assert listed(tmp_path / "tombstones") == ["n2.json", "n9.json"]


async def test_a_quarantined_file_can_be_discarded(tmp_path: Path) -> None:
    folder = tmp_path / "instances"
    folder.mkdir()
    folder.joinpath("x.json").write_bytes(b"{")
    folder.joinpath("y.json").mkdir()
    store = RecordStore(tmp_path)
    for item in store.load().quarantined:
        await store.discard(item)
    assert RecordStore(tmp_path).load().quarantined == []


def test_a_full_disk_holds_no_devices(tmp_path: Path) -> None:
    def body() -> None:
        store = RecordStore(tmp_path)
        store.load()
        record, big = a_record("x"), a_record("x", log_path="p" * 200_000)
        asyncio.run(store.write(record))
        with pytest.raises(StoreError) as caught:
            asyncio.run(store.write(big))
        assert caught.value.reason == "disk-full"
        assert RecordStore(tmp_path).load().records == {"x": record}
        assert listed(tmp_path / "instances") == ["x.json"]
        with pytest.raises(StoreError) as caught:
            asyncio.run(store.bury(Tombstone(record=big, ended_at="", failure=None, exit=None)))
        assert caught.value.reason == "disk-full"
        assert listed(tmp_path / "instances") == []
        assert listed(tmp_path / "tombstones") == []

    on_small_disk(tmp_path, "128k", body)
