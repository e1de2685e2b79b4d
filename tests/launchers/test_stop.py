"""Trees: who is found to be in one, and how all of it ends."""

# Short looks at /proc and at children of the test, which block nothing for long.
# ruff: noqa: ASYNC110, ASYNC240

import os
import signal
import socket
import time
from pathlib import Path

import anyio
import msgspec
import pytest

from supervisor.contracts.engine import StopStyle
from supervisor.launchers.base import CannotTellError, Exit, Running, StopUnfinishedError
from supervisor.launchers.process import census
from supervisor.launchers.process.census import CensusTaker, ScanFailedError
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.procfs import read_stat
from tests.launchers.conftest import (
    AT_ONCE,
    SOON_S,
    Ground,
    alive,
    appears,
    free_port,
    gone,
    listens,
)
from tests.parts.stub import interpreter, stub_binary

pytestmark = pytest.mark.anyio

PATIENT = StopStyle(grace_ms=60_000)


async def children(ground: Ground) -> list[int]:
    """The pids of a stub's children, which it wrote before it was up."""
    return [int(line) for line in (await appears(ground.folder / "children")).split()]


async def family(ground: Ground, kinds: str, **knobs: str | float) -> tuple[Running, list[int]]:
    place = ground.folder / "children"
    place.unlink(missing_ok=True)
    running = await ground.stub(children=kinds, children_file=str(place), **knobs)
    return running, await children(ground)


async def test_every_kind_of_child_is_a_member(ground: Ground) -> None:
    running, pids = await family(ground, "session,detached,deaf,detached+deaf,erased")
    members = {member.pid: member.name for member in await running.members()}
    assert set(members) == {ground.pid(running), *pids}
    assert next(iter(members)) == ground.pid(running)
    assert members[pids[4]] == "VLLM::Worker"
    receipt = await running.stop(PATIENT, 300)
    assert receipt.survivors == ()
    assert not any(map(alive, pids))


async def test_a_member_that_erased_its_traces_is_remembered(ground: Ground) -> None:
    """In another session, with init for a parent and no environment, it is known from before."""
    place = ground.folder / "pid"
    program = (
        "import os, sys, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[1] / 'parts')!r})\n"
        "import stub_engine\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        f"    stub_engine.write_whole({str(place)!r}, str(os.getpid()))\n"
        f"    while not os.path.exists({str(place) + '.seen'!r}): time.sleep(0.01)\n"
        "    stub_engine.erase_title('VLLM::Worker')\n"
        f"    stub_engine.write_whole({str(place) + '.erased'!r}, '')\n"
        "    time.sleep(600)\n"
        f"while not os.path.exists({str(place) + '.seen'!r}): time.sleep(0.01)\n"
    )
    running = await ground.start(interpreter(), "-c", program)
    worker = int(await appears(place))
    assert worker in [member.pid for member in await running.members()]
    (ground.folder / "pid.seen").touch()
    await appears(ground.folder / "pid.erased")
    assert await running.wait_exit() == Exit(0, None)
    assert await running.liveness() == "leaderGone"
    assert [member.pid for member in await running.members()] == [worker]
    receipt = await running.stop(PATIENT, 5000)
    assert [member.pid for member in receipt.swept] == [worker]
    assert not alive(worker)


async def test_a_stop_asks_and_reports(ground: Ground) -> None:
    running = await ground.stub(on_term=3)
    receipt = await running.stop(PATIENT, 60_000)
    assert receipt.exit == Exit(3, None)
    assert receipt.killed == receipt.swept == receipt.survivors == ()
    assert await running.liveness() == "gone"
    again = await running.stop(PATIENT, 60_000)
    assert again.exit == Exit(3, None)


async def test_orp_2_a_deaf_child_of_an_obedient_leader(ground: Ground) -> None:
    """ORP-2."""
    running, pids = await family(ground, "deaf")
    began = time.monotonic()
    receipt = await running.stop(PATIENT, 700)
    took = time.monotonic() - began
    assert 0.6 < took < SOON_S / 2
    assert receipt.exit == Exit(0, None)
    assert [member.pid for member in receipt.killed] == pids
    assert [member.pid for member in receipt.swept] == pids
    assert receipt.survivors == ()
    assert not alive(pids[0])


async def test_orp_2_a_deaf_leader(ground: Ground) -> None:
    running, pids = await family(ground, "session,detached+deaf", on_term="ignore")
    began = time.monotonic()
    receipt = await running.stop(PATIENT, 700)
    assert 0.6 < time.monotonic() - began < SOON_S / 2
    assert receipt.exit == Exit(None, "SIGKILL")
    assert {member.pid for member in receipt.killed} == {ground.pid(running), *pids}
    assert not any(map(alive, pids))


async def test_nothing_is_left_soon_after_the_escalation(ground: Ground) -> None:
    """A detached grandchild, deaf, with a title over its environment. The machine is shared, so it
    is the best of three that counts.
    """
    lags: list[float] = []
    for _ in range(3):
        running, pids = await family(ground, "session+detached+deaf+erased")
        began = time.monotonic()
        receipt = await running.stop(PATIENT, 200)
        lags.append(time.monotonic() - began - 0.2)
        assert [member.pid for member in receipt.killed] == pids
        assert not any(map(alive, pids))
    assert min(lags) < 0.05


async def test_an_obedient_child_ends_the_stop_early(ground: Ground) -> None:
    running, pids = await family(ground, "session,detached")
    with anyio.fail_after(SOON_S):
        receipt = await running.stop(PATIENT, 60_000)
    assert {member.pid for member in receipt.swept} == set(pids)
    assert receipt.killed == ()


async def test_orp_1_members_outlive_a_killed_leader(ground: Ground) -> None:
    """ORP-1."""
    running, pids = await family(ground, "session,detached,deaf")
    os.kill(ground.pid(running), signal.SIGKILL)
    assert await running.wait_exit() == Exit(None, "SIGKILL")
    assert await running.liveness() == "leaderGone"
    assert {member.pid for member in await running.members()} == set(pids)

    # So does a daemon that comes only now.
    again = await ground.attach(running, kill_patience_s=SOON_S)
    assert await again.liveness() == "leaderGone"
    receipt = await again.stop(PATIENT, 300)
    assert {member.pid for member in receipt.swept} == set(pids)
    assert [member.pid for member in receipt.killed] == [pids[2]]
    assert await again.liveness() == await running.liveness() == "gone"


async def test_a_stopped_leader_is_woken_to_obey(ground: Ground) -> None:
    running = await ground.stub(on_term=5)
    os.kill(ground.pid(running), signal.SIGSTOP)
    with anyio.fail_after(SOON_S):
        assert (await running.stop(PATIENT, 60_000)).exit == Exit(5, None)


async def test_a_second_term_for_engines_that_wait_for_clients(ground: Ground) -> None:
    port = free_port()
    binary = stub_binary(ground.folder, on_term="drain")
    running = await ground.start(binary, "--port", str(port))
    await listens(ground)
    async with await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(b"GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
        await client.receive()
        style = StopStyle(grace_ms=60_000, second_term_after_ms=200)
        with anyio.fail_after(SOON_S):
            receipt = await running.stop(style, 60_000)
    assert receipt.exit == Exit(1, None)
    assert receipt.killed == ()


async def test_without_grace_all_is_killed_at_once(ground: Ground) -> None:
    running, pids = await family(ground, "session,detached+deaf", on_term="ignore")
    began = time.monotonic()
    receipt = await running.stop(AT_ONCE, 0)
    assert time.monotonic() - began < SOON_S / 2
    assert len(receipt.killed) == 3
    assert not any(map(alive, pids))


async def test_members_that_are_born_meanwhile_are_killed_too(ground: Ground) -> None:
    """A leader that answers TERM with new processes, for as long as it lives."""
    program = "trap 'while :; do sleep 600 & sleep 0.01; done' TERM; echo up; while :; do :; done"
    running = await ground.start("sh", "-c", program)
    with anyio.fail_after(SOON_S):
        while "up" not in ground.log:
            await anyio.sleep(0.01)
    receipt = await running.stop(PATIENT, 300)
    assert receipt.survivors == ()
    assert len(receipt.killed) > 5
    assert await running.liveness() == "gone"


async def test_orp_4_others_are_left_alone(ground: Ground) -> None:
    """ORP-4."""
    other = Ground(ground.folder, ground.launcher)
    helper = await anyio.open_process(["sleep", "600"])
    theirs, their_children = await family(other, "session,detached")
    running, _ = await family(ground, "session,detached")
    await running.stop(PATIENT, 60_000)
    assert await theirs.liveness() == "alive"
    assert all(map(alive, their_children))
    assert helper.returncode is None

    await theirs.stop(AT_ONCE, 0)
    theirs.close()
    helper.kill()
    await helper.wait()


async def test_another_launch_below_ours(ground: Ground) -> None:
    """As under a daemon that an engine started. It is left alone, unless it is in our cgroup: what
    a process carries is its own word, what was put around it is ours.
    """
    inner = ground.folder / "inner"
    program = f"ENGINE_SUPERVISOR_NONCE=another sleep 600 & echo $! > {inner}.part; "
    outer = await ground.start("sh", "-c", program + f"mv {inner}.part {inner}; wait")
    pid = int(await appears(inner))
    with anyio.fail_after(SOON_S):
        while (stat := read_stat(pid)) and stat.name != "sleep":
            await anyio.sleep(0.01)
    receipt = await outer.stop(PATIENT, 60_000)
    if ground.cgroups:
        assert pid in [member.pid for member in receipt.swept]
    else:
        assert pid not in [member.pid for member in receipt.swept]
        assert alive(pid)
        os.kill(pid, signal.SIGKILL)
    await gone(pid)


async def test_what_kill_does_not_end_is_reported(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing here can be unkillable, so the signal is kept from arriving."""
    running, pids = await family(ground, "deaf")
    real = signal.pidfd_send_signal

    def weak(pidfd: int, number: int) -> None:
        if number != signal.SIGKILL:
            real(pidfd, number)

    impatient = await ground.attach(running, kill_patience_s=0.3)
    with monkeypatch.context() as patch:
        patch.setattr(signal, "pidfd_send_signal", weak)
        patch.setattr(Cgroup, "kill", lambda _: True)
        receipt = await impatient.stop(PATIENT, 200)
    impatient.close()
    assert [member.pid for member in receipt.survivors] == pids
    assert receipt.swept == ()
    assert receipt.exit is not None
    assert alive(pids[0])


async def test_a_proc_that_hides_the_engine_ends_nothing(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await ground.stub()
    with monkeypatch.context() as patch:
        patch.setattr(census, "processes", list)
        if ground.cgroups:
            assert len(await running.members()) == 1
            return
        with pytest.raises(CannotTellError):
            await running.stop(PATIENT, 0)
        assert await running.liveness() == "alive"
        assert await running.owns_socket(2**31) == "unknown"
    assert alive(ground.pid(running))


async def test_a_stop_that_loses_sight_of_the_tree_says_that_it_began(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was asked already is not asked twice: for some engines that means something else."""
    terms = ground.folder / "terms"
    program = (
        "import signal, sys, time\n"
        f"def note(*_): open({str(terms)!r}, 'a').write('t')\n"
        "signal.signal(signal.SIGTERM, note)\n"
        f"open({str(terms)!r}, 'w').close()\n"
        "while True: time.sleep(0.05)\n"
    )
    running = await ground.start(interpreter(), "-c", program)
    await appears(terms)

    async def fails(_: CensusTaker) -> None:
        raise ScanFailedError

    async with anyio.create_task_group() as group:

        async def blind() -> None:
            await until_written(terms, "t")
            monkeypatch.setattr(CensusTaker, "take", fails)

        group.start_soon(blind)
        with pytest.raises(StopUnfinishedError):
            await running.stop(PATIENT, 500)
    with pytest.raises(StopUnfinishedError):
        await running.stop(PATIENT, 0)
    monkeypatch.undo()
    receipt = await running.stop(PATIENT, 300)
    assert receipt.exit == Exit(None, "SIGKILL")
    assert terms.read_text() == "t"


async def until_written(path: Path, text: str) -> None:
    with anyio.fail_after(SOON_S):
        while path.read_text() != text:
            await anyio.sleep(0.01)


async def test_a_cancelled_stop_kills_nobody(ground: Ground) -> None:
    running, pids = await family(ground, "deaf", on_term="ignore")
    with anyio.move_on_after(0.3) as scope:
        await running.stop(PATIENT, 60_000)
    assert scope.cancelled_caught
    assert await running.liveness() == "alive"
    assert alive(pids[0])


async def test_two_stops_at_once_are_one(ground: Ground) -> None:
    running = await ground.stub(on_term="drain", term_delay=0.1)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(running.stop, PATIENT, 60_000)
    assert await running.wait_exit() == Exit(0, None)


async def test_a_grace_can_be_shortened_and_not_lengthened(ground: Ground) -> None:
    running, pids = await family(ground, "deaf", on_term="ignore")
    began = time.monotonic()
    async with anyio.create_task_group() as group:
        group.start_soon(running.stop, PATIENT, 60_000)
        await anyio.sleep(0.2)
        running.hasten(300)
        running.hasten(50_000)
    assert 0.5 <= time.monotonic() - began < SOON_S
    assert not any(map(alive, [ground.pid(running), *pids]))


async def test_a_session_of_strangers_under_a_recycled_number_is_not_ours(ground: Ground) -> None:
    """The worst of reuse: an alien session whose number is our dead leader's pid."""
    stranger = await ground.start("sh", "-c", "sleep 60 & wait", env={"PATH": "/usr/bin:/bin"})
    handle = ground.handle(stranger)
    await anyio.sleep(0.1)
    assert handle.start_token
    boot, _, start = handle.start_token.partition(":")
    record = msgspec.structs.replace(handle, start_token=f"{boot}:{int(start) - 1}")
    mistaken = await ground.launcher.attach(record, "a-nonce-of-old")
    assert await mistaken.liveness() == "gone"
    assert (await mistaken.stop(PATIENT, 0)).killed == ()

    # With the number's bearer dead, nothing tells whose session it was.
    os.kill(handle.pid, signal.SIGKILL)
    await stranger.wait_exit()
    assert await mistaken.liveness() == "unknown"
    with pytest.raises(CannotTellError):
        await mistaken.stop(PATIENT, 0)
    mistaken.close()
    assert await stranger.liveness() == "leaderGone"


def inodes(pid: int) -> list[int]:
    """Of the sockets that a process holds."""
    folder = f"/proc/{pid}/fd"
    places = [os.readlink(f"{folder}/{descriptor}") for descriptor in os.listdir(folder)]
    return [int(place[8:-1]) for place in places if place.startswith("socket:[")]


async def test_the_owner_of_a_socket(ground: Ground) -> None:
    port = free_port()
    running = await ground.start(stub_binary(ground.folder), "--port", str(port))
    await listens(ground)
    (inode,) = inodes(ground.pid(running))
    assert await running.owns_socket(inode) == "ours"
    assert await running.owns_socket(0) == "unknown"
    with socket.create_server(("127.0.0.1", 0)) as mine:
        assert await running.owns_socket(os.fstat(mine.fileno()).st_ino) == "foreign"

    # Held by a detached member alone.
    program = (
        "import os, socket, time\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "if os.fork():\n"
        "    os._exit(0)\n"
        "os.setsid()\n"
        "time.sleep(600)\n"
    )
    orphaned = await ground.start(interpreter(), "-c", program)
    await orphaned.wait_exit()
    (member,) = [member for member in await orphaned.members() if member.pid != ground.pid(running)]
    (inode,) = inodes(member.pid)
    assert await orphaned.owns_socket(inode) == "ours"
