"""Rotation under a writer that never waits, and under crashes at every step."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.contracts.config import LogsConfig
from supervisor.logs.reading import read_from, tail
from supervisor.logs.rotation import rotate
from supervisor.logs.series import Series
from tests.logs.writers import can_collapse, files_of, line, numbered, numbers, writing

SMALL = LogsConfig(max_bytes=128 * 1024, archives=1000)
STEPS = ("copied", "complete", "marked", "collapsed", "truncated", "shifted", "numbered")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    if not can_collapse(tmp_path):
        pytest.skip("the file system of tmp_path cannot collapse")
    return tmp_path / "x.log"


@pytest.fixture
def shm_log(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A log on tmpfs, which cannot collapse."""
    folder = Path(f"/dev/shm/test-logs-{os.getpid()}-{request.node.name[:40]}")
    if not os.path.ismount("/dev/shm"):
        pytest.skip("there is no tmpfs at /dev/shm")
    folder.mkdir()
    yield folder / "x.log"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def read_all(path: Path, cursor: int = 0) -> tuple[list[str], int]:
    lines: list[str] = []
    while True:
        chunk = read_from(str(path), cursor)
        if chunk.cursor == cursor:
            return lines, cursor
        lines += chunk.lines
        cursor = chunk.cursor


def test_no_line_is_lost_or_doubled_under_a_writer_that_never_waits(log: Path) -> None:
    with writing(log, 300_000) as writer:
        while writer.poll() is None:
            rotate(str(log), SMALL)
    rotate(str(log), SMALL)
    assert len(files_of(log)) > 50
    assert numbers(files_of(log)) == list(range(300_000))
    assert log.stat().st_size <= SMALL.max_bytes
    lines, _ = read_all(log)
    assert lines == [line(number).decode()[:-1] for number in range(300_000)]


def test_a_follower_sees_every_line_once_while_all_this_goes_on(log: Path) -> None:
    lines: list[str] = []
    cursor = 0
    log.touch()
    with writing(log, 100_000) as writer:
        over = False
        while True:
            rotate(str(log), SMALL)
            chunk = read_from(str(log), cursor)
            lines += chunk.lines
            if over and chunk.cursor == cursor:
                break
            cursor = chunk.cursor
            over = writer.poll() is not None
    assert lines == [line(number).decode()[:-1] for number in range(100_000)]


def test_archives_are_bounded_and_the_oldest_go(log: Path) -> None:
    limits = LogsConfig(max_bytes=128 * 1024, archives=3)
    for begin in range(0, 20_000, 1000):
        numbered(log, begin, begin + 1000)
        rotate(str(log), limits)
    files = files_of(log)
    assert [file.name for file in files] == ["x.log.3", "x.log.2", "x.log.1", "x.log"]
    kept = numbers(files)
    assert kept == list(range(kept[0], 20_000))
    assert all(file.stat().st_size <= 3 * limits.max_bytes for file in files)
    first, *rest = read_from(str(log), 0).lines
    assert "bytes of this log are not kept any more" in first
    assert rest[0] == line(kept[0]).decode()[:-1]


def test_a_log_that_grew_for_days_unwatched_is_bounded_at_once(log: Path) -> None:
    limits = LogsConfig(max_bytes=128 * 1024, archives=2)
    numbered(log, 0, 40_000)
    rotate(str(log), limits)
    files = files_of(log)
    assert sum(file.stat().st_size for file in files) < 5 * limits.max_bytes
    kept = numbers(files)
    assert kept == list(range(kept[0], 40_000))
    assert kept[0] > 20_000


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_after_any_step_neither_loses_nor_doubles(log: Path, step: str, nth: int) -> None:
    _crash_and_go_on(log, step, nth)
    assert numbers(files_of(log)) == list(range(20_000))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2])
def test_nor_does_it_where_the_file_is_truncated(shm_log: Path, step: str, nth: int) -> None:
    _crash_and_go_on(shm_log, step, nth)
    assert numbers(files_of(shm_log)) == list(range(20_000))


class Crash(BaseException):
    pass


def _crash_and_go_on(path: Path, step: str, nth: int) -> None:
    """A rotation dies at a step; a reader is there before, then, and after."""
    left = nth

    def at(now: str) -> None:
        nonlocal left
        left -= now == step
        if now == step and left == 0:
            raise Crash

    expected = [line(number).decode()[:-1] for number in range(20_000)]
    seen, cursor = [], 0
    for begin in range(0, 20_000, 2000):
        numbered(path, begin, begin + 2000)
        with suppress(Crash):
            rotate(str(path), SMALL, at)
        more, cursor = read_all(path, cursor)
        seen += more
        # A place in the log is the same for a reader that was not there.
        assert read_all(path)[0][: len(seen)] == seen
    numbered(path, 20_000, 20_000)
    rotate(str(path), SMALL)
    more, cursor = read_all(path, cursor)
    assert seen + more == expected
    assert read_all(path) == (expected, cursor)


def test_on_tmpfs_a_writer_loses_little_and_it_is_said(shm_log: Path) -> None:
    with writing(shm_log, 200_000) as writer:
        said = False
        while writer.poll() is None:
            rotation = rotate(str(shm_log), SMALL)
            said = said or rotation.may_have_lost
            assert rotation.may_have_lost == (rotation.archived > 0)
            time.sleep(0.005)
    rotate(str(shm_log), SMALL)
    assert said
    found = numbers_but_torn(files_of(shm_log))
    assert found == sorted(set(found))
    assert len(found) > 100_000


def numbers_but_torn(files: list[Path]) -> list[int]:
    data = b"".join(file.read_bytes() for file in files)
    lines = (text for text in data.splitlines() if text.startswith(b"line "))
    return [int(text.split()[1]) for text in lines if len(text.split()[1]) == 9]


def test_a_line_without_end_is_cut_where_it_must_be(log: Path) -> None:
    log.write_bytes(b"x" * 300_000 + b"\nend\n")
    rotate(str(log), SMALL)
    with Series(str(log)) as series:
        assert series.end == 300_005
    assert tail(str(log), 1).lines == ("end",)
    data = b"".join(file.read_bytes() for file in files_of(log))
    assert data.count(b"x") == 300_000


def test_a_log_that_others_truncate_is_read_on_from_its_start(log: Path) -> None:
    numbered(log, 0, 3000)
    rotate(str(log), SMALL)
    _, cursor = read_all(log)
    os.truncate(log, 0)
    numbered(log, 3000, 3010)
    after, cursor = read_all(log, cursor)
    assert after == [line(number).decode()[:-1] for number in range(3000, 3010)]
    numbered(log, 3010, 6000)
    rotate(str(log), SMALL)
    more, _ = read_all(log, cursor)
    assert more == [line(number).decode()[:-1] for number in range(3010, 6000)]
