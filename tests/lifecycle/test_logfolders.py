"""Logs of many attempts in one folder, and of instances that nobody knows any more."""

from pathlib import Path

import pytest

from supervisor.lifecycle.logfolders import forget_logs, make_log_path
from tests.lifecycle.house import opened, until


def test_a_number_says_which_log_is_the_oldest(tmp_path: Path) -> None:
    """CLK-1: the wall clock is stepped back by a year; the newest logs stay all the same."""
    for year in (2026, 2027, 2025, 2026, 2024, 2025, 2023):
        path = Path(make_log_path(str(tmp_path), "x", f"{year}0101T000000Z-n", keep=3))
        path.touch()
    left = sorted(it.name for it in path.parent.iterdir())
    assert [it[:11] for it in left] == ["000005-2024", "000006-2025", "000007-2023"]


def test_logs_of_an_older_version_go_first(tmp_path: Path) -> None:
    folder = tmp_path / "engines" / "x"
    folder.mkdir(parents=True)
    for name in ("20990101T000000Z-n-0001-1.log", "000001-20200101T000000Z-n.log"):
        (folder / name).touch()
    path = make_log_path(str(tmp_path), "x", "s", keep=2)
    assert Path(path).name == "000002-s.log"
    assert [it.name for it in folder.iterdir()] == ["000001-20200101T000000Z-n.log"]


def test_only_our_files_of_the_forgotten_go(tmp_path: Path) -> None:
    engines = tmp_path / "engines"
    for name in ("known", "gone", "notes"):
        (engines / name).mkdir(parents=True)
        (engines / name / "000001-s.log").touch()
        (engines / name / "000001-s.log.1").touch()
    (engines / "notes" / "mine.txt").touch()
    forget_logs(str(tmp_path), "gone")
    assert sorted(it.name for it in engines.iterdir()) == ["known", "notes"]
    with pytest.raises(OSError, match="not empty"):
        forget_logs(str(tmp_path), "notes")
    assert [it.name for it in engines.glob(".forgotten-*/*")] == ["mine.txt"]
    assert (engines / "known" / "000001-s.log.1").exists()
    forget_logs(str(tmp_path), "nobody")


@pytest.mark.anyio
async def test_logs_go_with_the_tombstone(tmp_path: Path) -> None:
    async with opened(tmp_path, tombstones=1) as home:
        engines = tmp_path / "log" / "engines"
        for name in ("a", "b"):
            await home.launch(name)
            await home.stop(name)
        await until(lambda: [it.name for it in engines.iterdir()] == ["b"])
