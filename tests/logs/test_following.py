"""Followers and the keeper of all logs, with engines that write meanwhile."""

from pathlib import Path

import anyio
import pytest

from supervisor.contracts.config import LogsConfig
from supervisor.logs import growth
from supervisor.logs.following import Follower, follow
from supervisor.logs.growth import Grown, Growth
from supervisor.logs.keeper import LogKeeper
from supervisor.logs.rotation import Rotation, rotate
from tests.logs.writers import files_of, line, numbered, numbers, writing

pytestmark = pytest.mark.anyio
SMALL = LogsConfig(max_bytes=128 * 1024, archives=1000)


def texts(begin: int, end: int) -> list[str]:
    return [line(number).decode()[:-1] for number in range(begin, end)]


async def test_a_follower_and_the_keeper_go_on_together(tmp_path: Path) -> None:
    log, lines = tmp_path / "x.log", list[str]()
    keeper = LogKeeper(SMALL, look_s=0.01, size_s=0.02)
    rotations: list[Rotation] = []
    log.touch()
    with writing(log, 60_000, pause=0.001) as writer, anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeper.run)
            keeper.keep(str(log), rotations.append)
            async for chunk in follow(str(log), 0, over=lambda: writer.poll() is not None):
                lines += chunk.lines
            tasks.cancel_scope.cancel()
    assert lines == texts(0, 60_000)
    assert len(rotations) > 3
    if not any(rotation.may_have_lost for rotation in rotations):
        assert numbers(files_of(log)) == list(range(60_000))


async def test_a_place_in_a_log_outlives_the_daemon(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    numbered(log, 0, 3000)
    first = await Follower(str(log), 0).read()
    assert first is not None
    rotate(str(log), SMALL)
    numbered(log, 3000, 6000)
    rotate(str(log), SMALL)
    later, lines = Follower(str(log), first.cursor), list(first.lines)
    while (chunk := await later.read()) is not None:
        lines += chunk.lines
    assert lines == texts(0, 6000)


async def test_text_without_an_end_is_shown_once_it_stays(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"one\nwaiting for")
    seen: list[str] = []
    with anyio.fail_after(10):
        async for chunk in follow(str(log), 0, over=lambda: len(seen) == 2):
            seen.extend(chunk.lines)
    assert seen == ["one", "waiting for"]


async def test_the_keeper_reads_what_grows_and_nothing_else(tmp_path: Path) -> None:
    log, heard = tmp_path / "x.log", list[Grown[tuple[str, ...]]]()
    log.write_bytes(b"before\n")
    keeper = LogKeeper(LogsConfig(), look_s=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        async with keeper.reading(str(log), 0, lambda lines: lines, heard.append):
            assert [grown.found for grown in heard] == [("before",)]
            await anyio.sleep(0.05)
            assert len(heard) == 1
            for _ in range(2):
                with log.open("ab") as more:
                    more.write(b"\rbar: 10%")
                await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    assert [grown.found for grown in heard[1:]] == [("", "bar: 10%"), ("bar: 10%",)]
    assert heard[-1].cursor == len(b"before\n\rbar: 10%\r")


async def test_a_failing_listener_disturbs_nobody(tmp_path: Path) -> None:
    log, heard = tmp_path / "x.log", list[object]()
    log.write_bytes(b"one\n")
    keeper = LogKeeper(LogsConfig(), look_s=0.01)

    def fail(_: object) -> None:
        raise ValueError

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.run)
        async with (
            keeper.reading(str(log), 0, len, fail),
            keeper.reading(str(log), 0, len, heard.append),
        ):
            await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    assert heard


def test_a_flood_is_looked_at_in_part(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"x" * (3 << 20) + b"\nlast\n")
    grown = Growth(str(log), 0, lambda lines: lines).look()
    assert grown is not None
    assert grown.found[-1] == "last"
    assert grown.cursor == log.stat().st_size
    assert sum(map(len, grown.found)) <= growth.LOOK_BYTES


def test_twenty_thousand_updates_of_a_bar_are_one_look(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"".join(b"\rloading %5d/20000" % number for number in range(20_000)))
    seen = Growth(str(log), 0, lambda lines: lines[-1])
    grown = seen.look()
    assert grown is not None
    assert grown.found == "loading 19999/20000"
    assert seen.look() is None
