import errno
import os
import time
from pathlib import Path

import pytest

from supervisor.contracts.instance import RECORD_SCHEMA
from supervisor.instances.codec import encode_record
from supervisor.instances.durable import StoreError
from supervisor.instances.files import RecordFiles
from supervisor.instances.loading import UNREADABLE_KEPT_S, Loaded, Quarantined, load
from tests.instances.builders import a_record, a_tombstone
from tests.instances.children import as_nobody, give_to_nobody


@pytest.fixture
def files(tmp_path: Path) -> RecordFiles:
    made = RecordFiles(tmp_path / "state")
    made.make_folders()
    return made


def again(files: RecordFiles) -> Loaded:
    """What the next start finds."""
    return load(RecordFiles(files.instances.parent))


def by_name(found: Loaded) -> dict[str, Quarantined]:
    return {item.name: item for item in found.quarantined}


def test_an_empty_place(tmp_path: Path) -> None:
    assert load(RecordFiles(tmp_path / "not" / "there")) == Loaded()
    assert (tmp_path / "not" / "there").stat().st_mode & 0o777 == 0o700


def test_bad_files_cost_themselves_and_nothing_else(files: RecordFiles) -> None:
    """STA-1."""
    good = encode_record(a_record("good"))
    put = files.instances
    put.joinpath("good.json").write_bytes(good)
    put.joinpath("empty.json").write_bytes(b"")
    put.joinpath("zeroes.json").write_bytes(bytes(1500))
    put.joinpath("half.json").write_bytes(encode_record(a_record("half"))[:320])
    put.joinpath("types.json").write_bytes(encode_record(a_record("types", port="x")))
    put.joinpath("mismatch.json").write_bytes(good)
    put.joinpath("no name.json").write_bytes(good)
    put.joinpath("unknown.json").write_bytes(encode_record(a_record("unknown"), {(): {"later": 1}}))
    put.joinpath("newer.json").write_bytes(
        encode_record(a_record("newer", schema_version=RECORD_SCHEMA + 1))
    )
    put.joinpath("folder.json").mkdir()
    os.mkfifo(put / "pipe.json")
    put.joinpath("link.json").symlink_to("good.json")
    put.joinpath(".good.json.tmp").write_bytes(b"{")
    put.joinpath("old.tmp").write_bytes(b"")
    put.joinpath("good.json.1").write_bytes(good)
    put.joinpath("README").write_bytes(b"not ours")

    found = load(files)
    assert set(found.records) == {"good", "unknown", "newer"}
    assert found.read_only == {"newer"}
    assert {item.name: item.reason for item in found.quarantined} == {
        "empty": "empty",
        "zeroes": "zero-filled",
        "half": "not-json",
        "types": "wrong-types",
        "mismatch": "name-mismatch",
        "no name": "name-mismatch",
        "folder": "not-a-file",
        "pipe": "not-a-file",
        "link": "not-a-file",
    }
    for item in found.quarantined:
        assert item.path.parent == files.quarantine
        assert os.path.lexists(item.path)
        assert item.detail
        assert not item.known
    assert by_name(found)["half"].devices == ("GPU-a",)
    assert by_name(found)["half"].nonce == "nonce-of-half"
    assert by_name(found)["zeroes"].devices is None
    assert {path.name for path in put.iterdir()} == {
        "good.json", "unknown.json", "newer.json", "good.json.1", "README",
    }  # fmt: skip


def test_quarantine_is_reported_at_each_start_and_reconsidered(files: RecordFiles) -> None:
    path = files.instances / "x.json"
    path.write_bytes(b"{")
    assert not load(files).quarantined[0].known
    (item,) = again(files).quarantined
    assert (item.name, item.known, item.reason) == ("x", True, "not-json")
    item.path.write_bytes(encode_record(a_record("x")))
    found = again(files)
    assert found.quarantined == []
    assert found.records == {"x": a_record("x")}
    assert path.exists()
    assert list(files.quarantine.iterdir()) == []


def test_a_mended_record_does_not_replace_a_later_one(files: RecordFiles) -> None:
    later = a_record("x", nonce="later")
    files.quarantine.joinpath("x.json").write_bytes(encode_record(a_record("x")))
    files.instances.joinpath("x.json").write_bytes(encode_record(later))
    found = load(files)
    assert found.records == {"x": later}
    (item,) = found.quarantined
    assert (item.reason, item.known, item.devices) == ("name-taken", True, ("GPU-a",))


def test_the_same_name_can_go_bad_more_than_once(files: RecordFiles) -> None:
    for content in (b"{", b"[", b""):
        files.instances.joinpath("x.json").write_bytes(content)
        load(files)
    found = again(files)
    assert [(item.name, item.path.name) for item in found.quarantined] == [
        ("x", "x.json"),
        ("x", "x.json.1"),
        ("x", "x.json.2"),
    ]
    assert [item.reason for item in found.quarantined] == ["not-json", "not-json", "empty"]


def test_tombstones_come_oldest_first_and_bad_ones_are_nothing(files: RecordFiles) -> None:
    for name, day in (("a", 3), ("b", 1), ("c", 2)):
        files.bury(a_tombstone(a_record(name), f"2026-01-0{day}T00:00:00.000Z"))
    files.tombstones.joinpath("bad.json").write_bytes(b"{")
    files.tombstones.joinpath("d.json").write_bytes(
        files.tombstones.joinpath("a.json").read_bytes()
    )
    found = again(files)
    assert list(found.tombstones) == ["b", "c", "a"]
    assert found.quarantined == []


def test_a_burial_that_was_cut_short_is_finished(files: RecordFiles) -> None:
    record = a_record("x")
    files.bury(a_tombstone(record))
    files.instances.joinpath("x.json").write_bytes(encode_record(record))
    found = again(files)
    assert found.records == {}
    assert list(found.tombstones) == ["x"]
    assert not files.instances.joinpath("x.json").exists()


def test_a_tombstone_of_an_earlier_launch_gives_way(files: RecordFiles) -> None:
    files.bury(a_tombstone(a_record("x", nonce="earlier")))
    files.instances.joinpath("x.json").write_bytes(encode_record(a_record("x")))
    found = again(files)
    assert list(found.records) == ["x"]
    assert found.tombstones == {}
    assert list(files.tombstones.iterdir()) == []


def test_a_file_that_may_not_be_read(shared_path: Path) -> None:
    give_to_nobody(shared_path)

    def body() -> None:
        files = RecordFiles(shared_path)
        for name in ("good", "secret"):
            load(files)
            files.write(a_record(name))
        files.record_path("secret").chmod(0)
        found = again(files)
        assert list(found.records) == ["good"]
        (item,) = found.quarantined
        assert (item.name, item.reason, item.devices) == ("secret", "denied", None)
        item.path.chmod(0o600)
        assert set(again(files).records) == {"good", "secret"}

    as_nobody(body)


def test_a_bad_file_that_cannot_be_moved_is_reported_where_it_is(
    files: RecordFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files.instances / "bad.json"
    path.write_bytes(b"{")

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "rename", refuse)
    (item,) = load(files).quarantined
    assert item.path == path
    assert item.reason == "not-json"
    assert "cannot be moved" in item.detail


def test_a_state_directory_that_may_not_be_used_is_said_at_once(shared_path: Path) -> None:
    shared_path.joinpath("instances").mkdir(mode=0o700)

    def body() -> None:
        with pytest.raises(StoreError) as caught:
            load(RecordFiles(shared_path))
        assert caught.value.reason == "denied"

    as_nobody(body)


def test_an_unreadable_tombstone_goes_when_it_is_old_and_is_told(files: RecordFiles) -> None:
    """A newer daemon may have written it and be back tomorrow; in a month it will not."""
    old, young = files.tombstones / "old.json", files.tombstones / "young.json"
    for path in (old, young):
        path.write_bytes(b"{")
    month_ago = time.time() - UNREADABLE_KEPT_S - 60
    os.utime(old, (month_ago, month_ago))
    found = again(files)
    assert found.pruned == (old,)
    assert list(files.tombstones.iterdir()) == [young]
    assert again(files).pruned == ()
