import errno
import os
import stat
from pathlib import Path

import pytest

from supervisor.instances.durable import (
    StoreError,
    StoreReason,
    make_folder,
    temp_of,
    unlink_durably,
    write_durably,
)
from tests.instances.children import as_nobody, on_small_disk

STEPS = ["create", "write", "fsync", "rename", "fsync-dir"]


class Crash(BaseException):
    """The daemon ends here."""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_steps_come_in_the_order_that_survives_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STA-1: what the kernel is told, not only what the hook is."""
    calls: list[str] = []
    write, fsync, replace = os.write, os.fsync, Path.replace
    folder = tmp_path.stat().st_ino

    def noted_fsync(descriptor: int) -> None:
        calls.append("fsync-dir" if os.fstat(descriptor).st_ino == folder else "fsync")
        fsync(descriptor)

    def noted_write(descriptor: int, data: bytes) -> int:
        calls.append("write")
        return write(descriptor, data[:3])  # a short one, which is legal

    def noted_replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "write", noted_write)
    monkeypatch.setattr(Path, "replace", noted_replace)
    steps: list[str] = []
    write_durably(tmp_path / "x", b"12345", steps.append)
    assert calls == ["write", "write", "fsync", "rename", "fsync-dir"]
    assert steps == STEPS
    assert (tmp_path / "x").read_bytes() == b"12345"


@pytest.mark.parametrize("at", STEPS)
def test_a_crash_leaves_the_old_or_the_new(tmp_path: Path, at: str) -> None:
    path = tmp_path / "x"
    write_durably(path, b"old")

    def step(name: str) -> None:
        if name == at:
            raise Crash

    with pytest.raises(Crash):
        write_durably(path, b"new", step)
    assert path.read_bytes() == (b"new" if at == "fsync-dir" else b"old")
    write_durably(path, b"newest")  # over whatever the crash has left
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    assert path.read_bytes() == b"newest"


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "disk-full"),
        (errno.EDQUOT, "disk-full"),
        (errno.EACCES, "denied"),
        (errno.EROFS, "denied"),
        (errno.EIO, "io"),
    ],
)
def test_a_failed_write_leaves_the_old_and_nothing_beside_it(
    tmp_path: Path, at: str, number: int, reason: StoreReason
) -> None:
    path = tmp_path / "x"
    write_durably(path, b"old")

    def step(name: str) -> None:
        if name == at:
            raise OSError(number, os.strerror(number))

    with pytest.raises(StoreError) as caught:
        write_durably(path, b"new", step)
    assert caught.value.reason == reason
    assert caught.value.detail == f"{path}: {os.strerror(number)}"
    assert caught.value.landed == (at == "fsync-dir")
    assert path.read_bytes() == (b"new" if at == "fsync-dir" else b"old")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_files_are_for_us_alone_whatever_the_umask_or_a_leftover(tmp_path: Path) -> None:
    path = tmp_path / "x"
    temp_of(path).write_bytes(b"left over, and longer")
    temp_of(path).chmod(0o666)
    before = os.umask(0)
    try:
        write_durably(path, b"new")
        make_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert mode_of(path) == 0o600
    assert mode_of(tmp_path / "a" / "b") == 0o700


def test_a_folder_that_is_too_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    make_folder(tmp_path / "a")
    assert mode_of(tmp_path / "a") == 0o700


def test_removing_is_flushed_and_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_durably(path, b"x")
    steps: list[str] = []
    unlink_durably(path, steps.append)
    unlink_durably(path)
    assert steps == ["unlink", "fsync-dir"]
    assert not path.exists()


def test_a_full_disk(tmp_path: Path) -> None:
    def body() -> None:
        path = tmp_path / "x"
        write_durably(path, b"old")
        with pytest.raises(StoreError) as caught:
            write_durably(path, bytes(1 << 20))
        assert caught.value.reason == "disk-full"
        assert path.read_bytes() == b"old"
        assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
        write_durably(path, b"new")

    on_small_disk(tmp_path, "64k", body)


def test_a_folder_of_somebody_else(shared_path: Path) -> None:
    shared_path.chmod(0o555)

    def body() -> None:
        with pytest.raises(StoreError) as caught:
            write_durably(shared_path / "x", b"new")
        assert caught.value.reason == "denied"

    as_nobody(body)
