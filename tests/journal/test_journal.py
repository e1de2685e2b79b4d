"""The journal: lines before subscribers, numbers that never repeat, and a disk that is full."""

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from supervisor.bus import Bus, Published
from supervisor.contracts.event import SupervisorStopping
from supervisor.journal import Journal
from tests.journal.parts import OTHER_BOOT, lines, opened, publish, start


def test_a_line_is_on_disk_before_anybody_hears_of_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    heard_before_written: list[int] = []

    def check(events: tuple[Published, ...]) -> None:
        written = {line["seq"] for line in lines(path)}
        heard_before_written.extend(it.stamp.seq for it in events if it.stamp.seq not in written)

    tail = start(tmp_path)
    bus = Bus(epoch=tail.epoch, last_seq=0, now=lambda: "t")
    writer = Journal(path, check, tail.promise)
    bus.attach(writer.record)
    publish(bus, 200)
    writer.close()
    assert len(lines(path)) == 200
    assert heard_before_written == []


def test_numbers_go_on_after_a_clean_end_even_over_a_boot(tmp_path: Path) -> None:
    tail = start(tmp_path)
    with opened(tmp_path / "events.jsonl", tail) as (bus, _, _collector):
        publish(bus, 3)
        bus.publish(SupervisorStopping(reason="SIGTERM", detached=0))
    again = start(tmp_path, OTHER_BOOT)
    assert (again.epoch, again.last_seq) == (tail.epoch, 4)
    assert [it.stamp.seq for it in again.events] == [1, 2, 3, 4]


def test_numbers_go_on_after_a_crash_of_the_daemon(tmp_path: Path) -> None:
    tail = start(tmp_path)
    with opened(tmp_path / "events.jsonl", tail) as (bus, _, _collector):
        publish(bus, 3)
    again = start(tmp_path)
    assert (again.epoch, again.last_seq) == (tail.epoch, 3)


def test_a_crash_of_the_machine_starts_a_new_epoch(tmp_path: Path) -> None:
    tail = start(tmp_path)
    with opened(tmp_path / "events.jsonl", tail) as (bus, _, collector):
        publish(bus, 3)
        collector.wait_for(3)
        again = start(tmp_path, OTHER_BOOT)
        assert again.epoch != tail.epoch
        assert (again.last_seq, again.events) == (0, ())


def test_lines_that_a_machine_took_with_it_are_not_forgotten_for_an_older_goodbye(
    tmp_path: Path,
) -> None:
    """Numbers 3 and 4 were seen, and were on their way to the disk when the power went."""
    path = tmp_path / "events.jsonl"
    tail = start(tmp_path)
    with opened(path, tail) as (bus, _, _collector):
        publish(bus, 1)
        bus.publish(SupervisorStopping(reason="SIGTERM", detached=0))
    on_disk = path.read_bytes()
    with opened(path, start(tmp_path)) as (bus, _, collector):
        publish(bus, 2)
        collector.wait_for(2)
        path.write_bytes(on_disk)
        assert start(tmp_path, OTHER_BOOT).epoch != tail.epoch


@pytest.mark.parametrize("harm", ["removed", "emptied", "shortened"])
def test_a_journal_that_was_tampered_with_starts_a_new_epoch(tmp_path: Path, harm: str) -> None:
    """An older file beside it has numbers that are old."""
    path = tmp_path / "events.jsonl"
    tail = start(tmp_path)
    with opened(path, tail, rotate_bytes=400, min_rotation_seconds=0.0) as (bus, _, _collector):
        publish(bus, 12)
    assert (tmp_path / "events.jsonl.1").exists()
    if harm == "removed":
        path.unlink()
    else:
        kept = path.read_bytes().splitlines(keepends=True)[:-1] if harm == "shortened" else []
        path.write_bytes(b"".join(kept))
    assert start(tmp_path).epoch != tail.epoch


def test_a_lost_journal_starts_a_new_epoch(tmp_path: Path) -> None:
    tail = start(tmp_path)
    with opened(tmp_path / "events.jsonl", tail) as (bus, _, _collector):
        publish(bus, 3)
    (tmp_path / "events.jsonl").unlink()
    assert start(tmp_path).epoch != tail.epoch


@pytest.mark.parametrize("torn", [b'{"seq":4,"epo', b"\0\0\0\0", b"half a line"])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "events.jsonl"
    tail = start(tmp_path)
    with opened(path, tail) as (bus, _, _collector):
        publish(bus, 3)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert start(tmp_path).last_seq == 3
    assert path.read_bytes() == whole


def test_rotation_renames_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with opened(path, start(tmp_path), rotate_bytes=400, min_rotation_seconds=0.0) as parts:
        publish(parts[0], 12)
    files = sorted(tmp_path.glob("events.jsonl*"), reverse=True)
    assert len(files) > 2
    assert [line["seq"] for file in files for line in lines(file)] == list(range(1, 13))


def test_two_rotations_keep_their_distance(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with opened(path, start(tmp_path), rotate_bytes=10, min_rotation_seconds=60.0) as parts:
        publish(parts[0], 50)
    assert [file.name for file in tmp_path.glob("events.jsonl*")] == ["events.jsonl"]


def test_a_file_renamed_by_somebody_else_is_left_alone_after_reopen(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with opened(path, start(tmp_path)) as (bus, writer, collector):
        publish(bus, 2)
        collector.wait_for(2)
        path.rename(tmp_path / "taken.jsonl")
        writer.reopen()
        publish(bus, 2)
    assert [line["seq"] for line in lines(tmp_path / "taken.jsonl")] == [1, 2]
    assert [line["seq"] for line in lines(path)] == [3, 4]


def test_a_full_disk_costs_lines_but_no_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    full = threading.Event()
    real_write = os.write

    def write(fd: int, data: bytes) -> int:
        if full.is_set() and threading.current_thread().name == "journal":
            half = real_write(fd, data[: len(data) // 2])
            if half:
                return half
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", write)
    with opened(path, start(tmp_path)) as (bus, _writer, collector):
        publish(bus, 2)
        collector.wait_for(2)
        full.set()
        publish(bus, 3)
        collector.wait_for(5)
        full.clear()
        publish(bus, 1)
        collector.wait_for(6)
    assert [it.stamp.seq for it in collector.events] == [1, 2, 3, 4, 5, 6]
    assert [(line["seq"], line["kind"]) for line in lines(path)] == [
        (1, "device-found"),
        (2, "device-found"),
        (5, "journal-gap"),
        (6, "device-found"),
    ]
    gap = lines(path)[2]
    assert (gap["from"], gap["to"]) == (3, 5)
    assert start(tmp_path).last_seq == 6


def test_recording_never_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = threading.Event()
    real_write = os.write

    def write(fd: int, data: bytes) -> int:
        if threading.current_thread().name == "journal":
            slow.wait(10)
        return real_write(fd, data)

    monkeypatch.setattr(os, "write", write)
    with opened(tmp_path / "events.jsonl", start(tmp_path)) as (bus, _, collector):
        began = time.monotonic()
        publish(bus, 1_000)
        assert time.monotonic() - began < 2
        assert collector.events == []
        slow.set()
        collector.wait_for(1_000)
