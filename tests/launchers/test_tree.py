"""The rule of membership over made-up processes, and the census it is applied to."""

import os
import threading

import anyio
import pytest

from supervisor.launchers.process import census as census_module
from supervisor.launchers.process.census import Census, CensusTaker, ScanFailedError
from supervisor.launchers.process.procfs import Stat
from supervisor.launchers.process.tree import Signs, find_members

LEADER, START = 5000, 100
US = os.getpid()


def process(pid: int, ppid: int = 1, *, session: int = 1, start: int = 200) -> Stat:
    return Stat(pid=pid, name="x", state="S", ppid=ppid, session=session, threads=1, start=start)


def find(
    *stats: Stat,
    nonces: dict[int, str] | None = None,
    known: dict[int, int] | None = None,
    seen_at: int | None = START,
    inside: tuple[Stat, ...] = (),
) -> tuple[set[int], bool]:
    world = (process(1, 0, start=0), process(US, 1, start=10), *stats)
    signs = Signs(LEADER, START, "mine", seen_at)
    found, doubtful = find_members(Census(world, nonces or {}), signs, known or {}, inside)
    return {stat.pid for stat in found}, doubtful


THE_LEADER = process(LEADER, US, session=LEADER, start=START)


def test_session_descent_and_nonce_each_make_a_member() -> None:
    in_session = process(5001, 1, session=LEADER)
    left_session = process(5002, LEADER, session=5002)
    below = process(5003, 5002, session=5003)
    escaped = process(5004, 1, session=5004)
    stranger = process(5005, 1, session=5005)
    found = find(
        THE_LEADER, in_session, left_session, below, escaped, stranger, nonces={5004: "mine"}
    )
    assert found == ({LEADER, 5001, 5002, 5003, 5004}, False)


def test_whoever_was_seen_stays_unless_the_pid_is_another_process() -> None:
    known = {6000: 200, 6001: 200}
    escaped, recycled = process(6000), process(6001, start=300)
    assert find(escaped, recycled, known=known) == ({6000}, False)


def test_another_launch_is_left_out_with_all_below_it() -> None:
    inner = process(5001, LEADER, session=5001)
    below = process(5002, 5001, session=5001)
    found = find(THE_LEADER, inner, below, nonces={5001: "other", 5002: "other"})
    assert found == ({LEADER}, False)
    # Known or in the very session, it is left out all the same.
    inner = process(5001, LEADER, session=LEADER)
    assert find(THE_LEADER, inner, known={5001: 200}, nonces={5001: "other"})[0] == {LEADER}


def test_this_process_and_those_above_it_are_never_members() -> None:
    shell = process(4000, 1, session=4000, start=150)
    daemon = process(US, 4000, session=4000, start=160)
    helper = process(4001, US, session=4001)
    found = find(THE_LEADER, shell, daemon, helper, nonces={4000: "mine", US: "mine"})
    assert found == ({LEADER}, False)


def test_whoever_is_in_the_cgroup_is_a_member_with_all_below_it() -> None:
    """Whatever it says of itself; but never we, whoever put us there."""
    escaped, moved = process(6000, 1, session=6000), process(6001, 6000, session=6001)
    odd, born_since = process(6002, 1, session=6002, start=50), process(6003, 1, session=6003)
    us = process(US, 1, start=10)
    found = find(
        *(THE_LEADER, escaped, moved, odd),
        nonces={6002: "other"},
        inside=(escaped, odd, born_since, us),
    )
    assert found == ({LEADER, 6000, 6001, 6002, 6003}, False)


def test_nobody_older_than_the_main_process_is_a_member() -> None:
    assert find(THE_LEADER, process(5001, start=99), nonces={5001: "mine"})[0] == {LEADER}


def test_a_session_without_its_leader() -> None:
    orphan = process(5001, 1, session=LEADER, start=200)
    # Older than our last sight of the leader: its number had not come round by then.
    assert find(orphan, seen_at=201) == ({5001}, False)
    # No proof, and no proof of the contrary.
    assert find(orphan, seen_at=200) == (set(), True)
    assert find(orphan, seen_at=None) == (set(), True)
    # One proved member proves its session.
    proved = process(5002, 1, session=LEADER)
    assert find(orphan, proved, seen_at=None, nonces={5002: "mine"}) == ({5001, 5002}, False)
    # A new bearer of the number owns the session.
    usurper = process(LEADER, 1, session=LEADER, start=150)
    assert find(orphan, usurper, seen_at=None) == (set(), False)


def test_a_bearer_of_the_same_tick_is_no_member_if_the_leader_was_lost() -> None:
    below = process(5001, LEADER, session=LEADER)
    assert find(THE_LEADER, below, seen_at=None) == (set(), False)


@pytest.mark.anyio
async def test_those_who_ask_together_share_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = 0
    gate = threading.Event()

    def slow() -> list[Stat]:
        nonlocal scans
        scans += 1
        gate.wait(5)
        return [process(7000 + scans)]

    monkeypatch.setattr(census_module, "processes", slow)
    taker = CensusTaker()
    seen: list[set[int]] = []

    async def ask() -> None:
        seen.append(set((await taker.take()).stats))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        for _ in range(20):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    # What ran when they asked may have passed what they ask about: all of them got the next one.
    assert scans == 2
    assert seen == [{7001}] + [{7002}] * 20


@pytest.mark.anyio
async def test_a_read_that_hangs_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def nonce(pid: int) -> str | None:
        if pid == 7000:
            release.wait(10)
        return "mine"

    monkeypatch.setattr(census_module, "SCAN_DEADLINE_S", 0.2)
    monkeypatch.setattr(census_module, "processes", lambda: [process(7000), process(7001)])
    monkeypatch.setattr(census_module, "read_nonce", nonce)
    taker = CensusTaker()
    try:
        assert (await taker.take()).nonces == {7001: "mine"}
        with anyio.fail_after(0.15):
            assert set((await taker.take()).stats) == {7000, 7001}
    finally:
        release.set()


@pytest.mark.anyio
async def test_who_lives_is_unknown_if_every_scan_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang() -> list[Stat]:
        release.wait(10)
        return []

    monkeypatch.setattr(census_module, "SCAN_DEADLINE_S", 0.05)
    monkeypatch.setattr(census_module, "processes", hang)
    try:
        with pytest.raises(ScanFailedError):
            await CensusTaker().take()
    finally:
        release.set()
