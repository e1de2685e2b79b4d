"""The journal on disks and in folders that misbehave: no line is lost that could be written, and no
number is given out twice."""

import errno
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.bus import Bus, Published
from supervisor.contracts.event import SupervisorStopping
from supervisor.contracts.rpc import WriterHealth
from supervisor.journal import Journal
from supervisor.journal.start import rotated
from tests.journal.parts import lines, opened, publish, start

QUICK: dict[str, Any] = {"min_rotation_seconds": 0.0, "retry_seconds": 0.0}


class Faults:
    """What the journal's thread is refused; everybody else is not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.no_rename = False
        self.no_open = False
        for name in ("write", "replace", "open"):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            if threading.current_thread().name == "journal":
                if name == "write" and self.full:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if name == "replace" and self.no_rename:
                    raise OSError(errno.EPERM, os.strerror(errno.EPERM))
                if name == "open" and self.no_open:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return real(*args, **named)

        return call


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def numbers(path: Path) -> list[int]:
    return [line["seq"] for line in lines(path)]


@pytest.mark.parametrize("refused", ["no_rename", "no_open"])
def test_a_rotation_that_fails_costs_no_line(tmp_path: Path, faults: Faults, refused: str) -> None:
    path = tmp_path / "events.jsonl"
    with opened(path, start(tmp_path), rotate_bytes=400, **QUICK) as (bus, _, collector):
        publish(bus, 3)
        collector.wait_for(3)
        setattr(faults, refused, True)
        for count in range(4, 14):
            publish(bus, 1)
            collector.wait_for(count)
        setattr(faults, refused, False)
        publish(bus, 1)
        collector.wait_for(14)
        publish(bus, 1)
    files = sorted(tmp_path.glob("events.jsonl*"), reverse=True)
    assert len(files) > 1
    assert [seq for file in files for seq in numbers(file)] == list(range(1, 16))


def test_a_reopening_that_fails_goes_on_in_the_old_file(tmp_path: Path, faults: Faults) -> None:
    path = tmp_path / "events.jsonl"
    with opened(path, start(tmp_path), **QUICK) as (bus, writer, collector):
        publish(bus, 1)
        collector.wait_for(1)
        path.rename(tmp_path / "taken.jsonl")
        faults.no_open = True
        writer.reopen()
        publish(bus, 1)
        collector.wait_for(2)
        faults.no_open = False
        publish(bus, 1)
        collector.wait_for(3)
    assert numbers(tmp_path / "taken.jsonl") == [1, 2]
    assert numbers(path) == [3]


@pytest.mark.parametrize("removed", ["file", "folder"])
def test_a_file_removed_by_hand_is_made_again(tmp_path: Path, removed: str) -> None:
    folder = tmp_path / "log"
    path = folder / "events.jsonl"
    tail = start(tmp_path, path=path)
    with opened(path, tail, **QUICK) as (bus, _, collector):
        publish(bus, 2)
        collector.wait_for(2)
        path.unlink()
        if removed == "folder":
            folder.rmdir()
        publish(bus, 2)
        collector.wait_for(4)
    told = lines(path)
    assert [(line["seq"], line["kind"]) for line in told] == [
        (2, "journal-gap"),
        (3, "device-found"),
        (4, "device-found"),
    ]
    assert told[0]["from"] == 1
    assert start(tmp_path, path=path).last_seq == 4


def test_a_removed_files_gap_begins_with_its_first_line(tmp_path: Path) -> None:
    """Also where an earlier daemon wrote that; what was rotated away is still there."""
    path = tmp_path / "events.jsonl"
    with opened(path, start(tmp_path), **QUICK) as (bus, _, collector):
        publish(bus, 3)
    path.rename(tmp_path / "events.jsonl.1")
    path.write_bytes(b"".join(path.with_name("events.jsonl.1").read_bytes().splitlines(True)[-1:]))
    with opened(path, start(tmp_path), **QUICK) as (bus, _, collector):
        publish(bus, 2)
        collector.wait_for(2)
        path.unlink()
        publish(bus, 1)
    told = lines(path)
    assert [(line["seq"], line["kind"]) for line in told] == [
        (5, "journal-gap"),
        (6, "device-found"),
    ]
    assert told[0]["from"] == 3


def test_a_rotation_that_fails_again_and_again_loses_no_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place that an attempt left free is filled by the next one, and nothing behind it moves."""
    path = tmp_path / "events.jsonl"
    for number in range(1, 5):
        rotated(path, number).write_text(f"{number}\n")
    real, failures = os.replace, [3]

    def replace(source: Path, target: Path) -> None:
        if source == path and failures[0]:
            failures[0] -= 1
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with opened(path, start(tmp_path), rotate_bytes=100, **QUICK) as (bus, _, collector):
        for count in range(1, 6):
            publish(bus, 1)
            collector.wait_for(count)
    assert failures == [0]
    assert [rotated(path, number).read_text() for number in (2, 3, 4)] == ["1\n", "2\n", "3\n"]


def test_a_torn_line_that_stays_has_a_line_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a file that somebody cut meanwhile gets no bytes of nothing."""
    path = tmp_path / "events.jsonl"
    real, short = os.write, [0]

    def write(fd: int, line: bytes) -> int:
        if short[0] and threading.current_thread().name == "journal":
            short[0] -= 1
            return real(fd, line[:10])
        return real(fd, line)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "write", write)
    with opened(path, start(tmp_path), **QUICK) as (bus, _, collector):
        publish(bus, 2)
        collector.wait_for(2)
        path.write_bytes(b"")
        short[0] = 1
        publish(bus, 1)
        collector.wait_for(3)
        assert path.read_bytes() == b""
        monkeypatch.setattr(os, "ftruncate", refuse)
        short[0] = 1
        publish(bus, 1)
        collector.wait_for(4)
        publish(bus, 1)
        collector.wait_for(5)
    torn, *rest = path.read_bytes().splitlines()
    assert len(torn) == 10
    assert [msgspec.json.decode(line)["seq"] for line in rest] == [4, 5]


def test_what_cannot_be_written_after_a_removal_is_a_gap(tmp_path: Path, faults: Faults) -> None:
    path = tmp_path / "events.jsonl"
    with opened(path, start(tmp_path), **QUICK) as (bus, _, collector):
        publish(bus, 2)
        collector.wait_for(2)
        faults.no_open = True
        path.unlink()
        publish(bus, 2)
        collector.wait_for(4)
        faults.no_open = False
        publish(bus, 1)
    told = lines(path)
    assert [(line["seq"], line["kind"]) for line in told] == [
        (4, "journal-gap"),
        (5, "device-found"),
    ]
    assert told[0]["from"] == 1


def test_a_daemon_that_dies_on_a_full_disk_starts_a_new_epoch(
    tmp_path: Path, faults: Faults
) -> None:
    """Numbers 3 and 4 went to subscribers and into no file: nobody can know that they are used."""
    path = tmp_path / "events.jsonl"
    tail = start(tmp_path)
    with opened(path, tail, **QUICK) as (bus, _, collector):
        publish(bus, 2)
        collector.wait_for(2)
        faults.full = True
        publish(bus, 2)
        collector.wait_for(4)
        found = start(tmp_path)
        assert (found.epoch != tail.epoch, found.last_seq) == (True, 0)
        found.promise.withdraw()
        faults.full = False
        publish(bus, 1)
        collector.wait_for(5)
        assert start(tmp_path).epoch == tail.epoch


def test_a_leaving_daemon_tells_its_gap_if_there_is_space_by_then(
    tmp_path: Path, faults: Faults
) -> None:
    path = tmp_path / "events.jsonl"
    tail = start(tmp_path)
    with opened(path, tail, **QUICK) as (bus, _, collector):
        publish(bus, 1)
        collector.wait_for(1)
        faults.full = True
        publish(bus, 2)
        collector.wait_for(3)
        faults.full = False
    assert [(line["seq"], line["kind"]) for line in lines(path)][1:] == [(3, "journal-gap")]
    again = start(tmp_path)
    assert (again.epoch, again.last_seq) == (tail.epoch, 3)


def test_the_number_of_a_newer_versions_event_is_not_given_out_again(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = start(tmp_path)
    with opened(path, tail) as (bus, _, _collector):
        publish(bus, 3)
    with path.open("ab") as file:
        line = lines(path)[-1] | {"seq": 4, "kind": "of-the-future"}
        file.write(msgspec.json.encode(line) + b"\n")
    again = start(tmp_path)
    assert (again.epoch, again.last_seq, again.events) == (tail.epoch, 4, ())


@pytest.mark.parametrize("line", [b"\0" * 40, b"{}", b"", b'{"seq": "many"}'])
def test_a_last_line_without_a_number_starts_a_new_epoch(tmp_path: Path, line: bytes) -> None:
    """Also where an older file would have numbers: those after them were given out."""
    path = tmp_path / "events.jsonl"
    tail = start(tmp_path)
    with opened(path, tail, rotate_bytes=400, min_rotation_seconds=0.0) as (bus, _, _collector):
        publish(bus, 12)
    assert (tmp_path / "events.jsonl.1").exists()
    with path.open("ab") as file:
        file.write(line + b"\n")
    assert start(tmp_path).epoch != tail.epoch


def test_a_fault_of_ours_costs_a_line_and_not_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    tail = start(tmp_path)
    with opened(path, tail) as (bus, writer, collector):
        publish(bus, 1)
        collector.wait_for(1)
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_append", lambda line: 1 / 0)
            publish(bus, 1)
            collector.wait_for(2)
        publish(bus, 1)
        collector.wait_for(3)
    assert [line["kind"] for line in lines(path)] == ["device-found", "journal-gap", "device-found"]


def test_a_subscribers_fault_costs_no_later_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = start(tmp_path)
    heard: list[int] = []
    done = threading.Event()

    def deliver(events: tuple[Published, ...]) -> None:
        heard.extend(it.stamp.seq for it in events)
        if heard[-1] == 1:
            raise ValueError("of the one who listens")
        if 2 in heard:
            done.set()

    bus = Bus(epoch=tail.epoch, last_seq=0, now=lambda: "t")
    writer = Journal(path, deliver, tail.promise)
    bus.attach(writer.record)
    publish(bus, 1)
    while not heard:
        done.wait(0.001)
    publish(bus, 1)
    assert done.wait(10)
    writer.close()
    assert numbers(path) == [1, 2]


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 256 KB of its own."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)]
    made = subprocess.run(mount, check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"mounting a tmpfs needs root: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """Journal and promise on one disk: what is lost has a gap, a death before it a new epoch."""
    with small_disk(tmp_path / "disk") as disk:
        path, ballast = disk / "events.jsonl", disk / "ballast"
        tail = start(disk)
        with opened(path, tail, **QUICK) as (bus, writer, collector):
            publish(bus, 2)
            collector.wait_for(2)
            assert writer.health == WriterHealth(lost=0, error=None)
            with ballast.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(b"\0" * 4096):
                    pass
            publish(bus, 200)
            collector.wait_for(202)
            ill = writer.health
            left = tmp_path / "left-behind"
            shutil.copytree(disk, left, ignore=shutil.ignore_patterns("ballast"))
            ballast.unlink()
            publish(bus, 1)
            collector.wait_for(203)
        assert start(left).epoch != tail.epoch
        told = lines(path)
        gaps = [line for line in told if line["kind"] == "journal-gap"]
        assert ill.lost == sum(gap["to"] - gap["from"] + 1 for gap in gaps) > 0
        assert ill.error
        assert writer.health == WriterHealth(lost=ill.lost, error=None)
        covered = [range(line.get("from", line["seq"]), line["seq"] + 1) for line in told]
        assert [seq for part in covered for seq in part] == list(range(1, 204))
        assert (start(disk).epoch, start(disk).last_seq) == (tail.epoch, 203)


STEPS = st.lists(
    st.sampled_from(
        [
            "publish",
            "full",
            "space",
            "stuck",
            "free",
            "remove",
            "reopen",
            "kill",
            "leave",
            "garbage",
            "boot",
        ]
    ),
    max_size=30,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_no_number_is_given_out_twice(tmp_path: Path, faults: Faults, steps: list[str]) -> None:
    """Whatever happens in whatever order, over deaths and boots; no line tells another story."""
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    folder = root / "0"
    pending = iter([*steps, "end"])
    heard: dict[tuple[str, int], str] = {}
    boots, lives, last = 0, 0, ""
    while last != "end":
        lives += 1
        told, last = live(folder, f"boot-{boots}", pending, faults, root / str(lives))
        for published in told:
            key = published.stamp.epoch, published.stamp.seq
            assert key not in heard
            heard[key] = published.encoded.decode()
        for file in folder.glob("events.jsonl*"):
            for line in file.read_bytes().splitlines():
                if b"device-found" in line:
                    stamp = msgspec.json.decode(line)
                    assert heard[stamp["epoch"], stamp["seq"]] == line.decode()
        if last != "leave":
            folder = root / str(lives)
        if last == "garbage":
            with (folder / "events.jsonl").open("ab") as torn:
                torn.write(b"\xff\xff\n")
        boots += last == "boot"


def live(
    folder: Path, boot: str, steps: Iterator[str], faults: Faults, left: Path
) -> tuple[list[Published], str]:
    """One daemon's life: what its subscribers heard, and what ended it.

    What lies on the disk at that moment is copied to ``left``: a killed daemon leaves that.
    """
    path = folder / "events.jsonl"
    count = 0
    with opened(path, start(folder, boot), rotate_bytes=600, **QUICK) as (bus, writer, collector):
        for step in steps:
            if step in ("full", "space"):
                faults.full = step == "full"
            elif step in ("stuck", "free"):
                faults.no_rename = faults.no_open = step == "stuck"
            elif step == "publish":
                publish(bus, 3)
                count += 3
                collector.wait_for(count)
            elif step == "remove":
                path.unlink(missing_ok=True)
            elif step == "reopen":
                writer.reopen()
            else:
                break
        if step == "leave":
            bus.publish(SupervisorStopping(reason="test", detached=0))
        else:
            shutil.copytree(folder, left)
    faults.full = faults.no_rename = faults.no_open = False
    return collector.events, step
