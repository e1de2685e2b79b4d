"""A survivor that wiped out every other sign is known by the log that it still has."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.launchers.process import ProcessLauncher
from supervisor.launchers.process.loglock import holders, lock_log, log_is_held
from supervisor.launchers.process.procfs import processes
from tests.launchers.conftest import AT_ONCE, Ground, alive, gone

pytestmark = pytest.mark.anyio
without_cgroups = pytest.mark.parametrize("ground", ["plain"], indirect=True)
"""With one, it tells all of this by itself."""


def opened(path: Path) -> int:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    lock_log(log)
    return log


def test_the_lock_goes_with_what_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    assert not log_is_held(str(path))
    log = opened(path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=log)
    os.close(log)
    assert log_is_held(str(path))
    assert [stat.pid for stat in holders(str(path), processes())] == [child.pid]
    os.rename(path, tmp_path / "moved.log")
    assert log_is_held(str(tmp_path / "moved.log"))
    child.kill()
    child.communicate()
    assert not log_is_held(str(tmp_path / "moved.log"))


def test_readers_shippers_and_other_writers_are_strangers(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log = opened(path)
    with open(path, "rb") as shipper, open(path, "ab") as writer:
        fcntl.flock(shipper.fileno(), fcntl.LOCK_UN)
        mine = [stat for stat in processes() if stat.pid == os.getpid()]
        assert holders(str(path), mine) == tuple(mine)
        os.close(log)
        assert not log_is_held(str(path))
        fcntl.flock(writer.fileno(), fcntl.LOCK_SH)
        assert not log_is_held(str(path))
    assert not holders(str(path), mine)


async def escaped(ground: Ground) -> tuple[ProcessLauncher, int]:
    """A member that nobody saw while its parents lived, and a launcher that never met it."""
    pids = ground.folder / "pids"
    running = await ground.stub(children="session+detached+erased+deaf", children_file=str(pids))
    child = int(pids.read_text())
    os.kill(ground.pid(running), signal.SIGKILL)
    await gone(ground.pid(running))
    await running.wait_exit()
    running.close()
    return ProcessLauncher(kill_patience_s=10), child


@without_cgroups
async def test_an_escaped_survivor_is_found_and_ended(ground: Ground) -> None:
    launcher, child = await escaped(ground)
    ref, log = ground.started[-1].ref, str(ground.folder / "engine.log")
    blind = await launcher.attach(ref, ground.nonce)
    assert await blind.liveness() == "gone"
    seeing = await launcher.attach(ref, ground.nonce, log_path=log)
    ground.started.append(seeing)
    try:
        assert await seeing.liveness() == "leaderGone"
        assert [member.pid for member in await seeing.members()] == [child]
        receipt = await seeing.stop(AT_ONCE, 100)
        assert [member.pid for member in receipt.killed] == [child]
        assert not receipt.survivors
        assert await seeing.liveness() == "gone"
        assert not alive(child)
    finally:
        if alive(child):
            os.kill(child, signal.SIGKILL)


@without_cgroups
async def test_a_lock_whose_holder_cannot_be_found_frees_nothing(ground: Ground) -> None:
    launcher, child = await escaped(ground)
    os.kill(child, signal.SIGKILL)
    await gone(child)
    log = ground.folder / "engine.log"
    ours = opened(log)
    try:
        # This test's own process is no member, whatever it has open.
        seeing = await launcher.attach(ground.started[-1].ref, ground.nonce, log_path=str(log))
        assert await seeing.liveness() == "unknown"
    finally:
        os.close(ours)
    assert await seeing.liveness() == "gone"
    seeing.close()
