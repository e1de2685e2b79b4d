"""What only a cgroup does: nobody gets out of it, and it is known to whoever comes after."""

# Short looks at /proc and at cgroups of the test, which block nothing for long.
# ruff: noqa: ASYNC220

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import UNSET

from supervisor.contracts.engine import StopStyle
from supervisor.contracts.event import MemberProcess
from supervisor.launchers.base import Exit, Running
from supervisor.launchers.process import ProcessLauncher
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.identity import Verdict, examine
from supervisor.launchers.process.procfs import read_boot_id, read_nonce
from tests.launchers.conftest import SOON_S, Ground, alive, appears, gone
from tests.parts.cgroups import end
from tests.parts.stub import interpreter

pytestmark = pytest.mark.anyio

PATIENT = StopStyle(grace_ms=60_000)
PARTS = str(Path(__file__).parents[1] / "parts")

ESCAPE = f"""
import os, signal, sys, time
sys.path.insert(0, {PARTS!r})
import stub_engine
if os.fork():
    time.sleep(float(sys.argv[2]))
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
null = os.open("/dev/null", os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(null, number)
stub_engine.erase_title("VLLM::Worker")
stub_engine.write_whole(sys.argv[1], str(os.getpid()))
time.sleep(600)
"""
"""A worker with no tie left: own session, init for a parent, no environment, no log."""


@pytest.fixture
def ground(caged: Ground) -> Ground:
    return caged


def place(ground: Ground, running: Running) -> Cgroup:
    path = ground.places[ground.pid(running)]
    assert path
    return Cgroup(Path(path))


async def escaped(ground: Ground, leader_life_s: float = 0.0) -> tuple[Running, int]:
    told = ground.folder / "escaped"
    running = await ground.start(interpreter(), "-c", ESCAPE, str(told), str(leader_life_s))
    worker = int(await appears(told))
    assert read_nonce(worker) is None
    return running, worker


async def test_a_worker_that_left_no_trace_is_found_and_ended(ground: Ground) -> None:
    """Before anybody ever looked, and with its leader gone."""
    running, worker = await escaped(ground)
    assert await running.wait_exit() == Exit(0, None)
    assert await running.liveness() == "leaderGone"
    assert [member.pid for member in await running.members()] == [worker]
    receipt = await running.stop(PATIENT, 100)
    assert [member.pid for member in receipt.killed] == [worker]
    assert [member.pid for member in receipt.swept] == [worker]
    assert receipt.survivors == ()
    assert not alive(worker)
    assert await running.liveness() == "gone"
    assert not place(ground, running).path.exists()


async def test_without_a_cgroup_it_would_not_be(ground: Ground) -> None:
    """The control: with the same signs but one, nobody knows of it."""
    running, worker = await escaped(ground)
    blind = await ProcessLauncher().attach(running.ref, ground.nonce)
    assert await blind.liveness() == "gone"
    blind.close()
    assert alive(worker)
    await running.stop(PATIENT, 0)


async def test_a_new_daemon_has_it_from_the_record(ground: Ground) -> None:
    running, worker = await escaped(ground, leader_life_s=600)
    running.close()
    again = await ground.attach(running, kill_patience_s=SOON_S)
    assert await again.liveness() == "alive"
    assert {member.pid for member in await again.members()} == {ground.pid(running), worker}
    os.kill(ground.pid(running), signal.SIGKILL)
    await again.wait_exit()

    # One that comes even later finds no leader any more.
    late = await ground.attach(running, kill_patience_s=SOON_S)
    assert await late.liveness() == "leaderGone"
    receipt = await late.stop(PATIENT, 0)
    assert [member.pid for member in receipt.killed] == [worker]
    assert not place(ground, running).path.exists()


async def test_nothing_is_left_soon_after_the_escalation(ground: Ground) -> None:
    lags: list[float] = []
    for _ in range(3):
        running, worker = await escaped(ground, leader_life_s=600)
        (ground.folder / "escaped").unlink()
        began = time.monotonic()
        await running.stop(PATIENT, 200)
        lags.append(time.monotonic() - began - 0.2)
        assert not alive(worker)
    assert min(lags) < 0.05


async def test_one_that_was_moved_out_by_hand_is_known_by_another_sign(ground: Ground) -> None:
    running, members = await two(ground)
    with outside(ground) as elsewhere:
        for member in members:
            elsewhere.join(member.pid)
        assert not place(ground, running).populated()
        assert await running.members() == members
        assert await running.liveness() == "alive"
        os.kill(members[0].pid, signal.SIGKILL)
        await running.wait_exit()
        assert await running.liveness() == "leaderGone"
        assert (await running.stop(PATIENT, 5000)).swept == members[1:]
        assert not alive(members[1].pid)


async def two(ground: Ground) -> tuple[Running, tuple[MemberProcess, ...]]:
    """A leader and its child, both of them what they will be."""
    running = await ground.start("sh", "-c", "sleep 600 & wait")
    with anyio.fail_after(SOON_S):
        while True:
            members = await running.members()
            if [member.name for member in members] == ["sh", "sleep"]:
                return running, members
            await anyio.sleep(0.01)


@contextmanager
def outside(ground: Ground) -> Iterator[Cgroup]:
    """Another cgroup, as a container engine or a person would make one."""
    root = place(ground, ground.started[0]).path.parent
    cgroup = Cgroup(root.with_name(f"{root.name}-elsewhere"))
    cgroup.path.mkdir()
    try:
        yield cgroup
    finally:
        end(cgroup.path)


async def test_engines_may_make_cgroups_of_their_own(ground: Ground) -> None:
    running, _ = await two(ground)
    cgroup = place(ground, running)
    inner, threaded = cgroup.path / "inner", cgroup.path / "inner" / "threads"
    inner.mkdir()
    (cgroup.path / "empty").mkdir()
    pids = cgroup.pids()
    Cgroup(inner).join(max(pids))
    threaded.mkdir()
    (threaded / "cgroup.type").write_text("threaded")
    (threaded / "cgroup.threads").write_text(str(max(pids)))
    assert cgroup.pids() == pids
    assert cgroup.inodes() >= {inner.stat().st_ino, cgroup.path.stat().st_ino}
    assert await running.owns_cgroup(threaded.stat().st_ino) == "ours"
    assert {member.pid for member in await running.members()} == pids
    receipt = await running.stop(PATIENT, 0)
    assert {member.pid for member in receipt.killed} == pids
    assert not cgroup.path.exists()


async def test_whose_a_listener_is_by_its_cgroup(ground: Ground) -> None:
    running = await ground.start("sleep", "600")
    inode = place(ground, running).path.stat().st_ino
    assert await running.owns_cgroup(inode) == "ours"
    with outside(ground) as elsewhere:
        strange = elsewhere.path.stat().st_ino
        assert await running.owns_cgroup(strange) == "foreign"
        elsewhere.join(ground.pid(running))
        # It may well have been opened there by now: its holder has to be looked for.
        assert await running.owns_cgroup(strange) == "unknown"
        assert await running.owns_cgroup(inode) == "ours"
    assert await running.owns_cgroup(strange) == "unknown"
    assert await running.liveness() == "gone"


async def test_a_cgroup_is_as_good_a_proof_as_the_nonce(ground: Ground) -> None:
    """For a leader that erased its environment, on a kernel without pidfs."""
    told = ground.folder / "erased"
    program = (
        f"import sys, time; sys.path.insert(0, {PARTS!r}); import stub_engine\n"
        "stub_engine.erase_title('VLLM::EngineCore')\n"
        f"stub_engine.write_whole({str(told)!r}, '')\n"
        "time.sleep(600)\n"
    )
    running = await ground.start(interpreter(), "-c", program)
    await appears(told)
    ref = msgspec.structs.replace(ground.handle(running), pidfd_inode=UNSET)
    inside = place(ground, running)
    for cgroup, expected in (
        (inside, Verdict.OURS),
        (Cgroup(inside.path / "not-there"), Verdict.CANNOT_TELL),
        (None, Verdict.CANNOT_TELL),
    ):
        verdict, pidfd = await examine(ref, ground.nonce, read_boot_id(), cgroup)
        assert pidfd is not None
        os.close(pidfd)
        assert verdict is expected
    await running.stop(PATIENT, 0)


async def test_the_last_one_out_is_told(cgroup_root: Path) -> None:
    cgroup = Cgroup(cgroup_root / "some")
    assert await cgroup.emptied(0), "what is not there is empty"
    cgroup.path.mkdir()
    assert await cgroup.emptied(0)
    with subprocess.Popen(["sleep", "600"]) as process:
        cgroup.join(process.pid)
        assert not await cgroup.emptied(0.02)
        assert not cgroup.remove()
        await anyio.sleep(0.02)  # the kernel tells of one change in 10 ms at once, not of more

        async def kill() -> None:
            await anyio.sleep(0.05)
            assert cgroup.kill()

        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            assert await cgroup.emptied(SOON_S)
        assert not cgroup.populated(), "though the dead one has not been reaped"
        assert cgroup.remove()
    assert not cgroup.kill()
    assert cgroup.remove()


async def test_we_never_end_ourselves(cgroup_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody put the daemon into an engine's cgroup."""
    cgroup = Cgroup(cgroup_root / "some")
    cgroup.path.mkdir()
    with subprocess.Popen(["sleep", "600"]) as process:
        cgroup.join(process.pid)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: process.pid)
            assert not cgroup.kill()
        assert process.poll() is None
        assert cgroup.kill()
    await gone(process.pid)
    assert cgroup.remove()
