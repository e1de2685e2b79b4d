"""Where cgroups of instances are made: what is needed for it, and what is left over by it."""

# Short looks at cgroups of the test, which block nothing for long.
# ruff: noqa: ASYNC110, ASYNC240

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.contracts.engine import StopStyle
from supervisor.launchers.base import SpawnError, Stray, Trace
from supervisor.launchers.process import Cgroups, ProcessLauncher, cgroups
from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.cgroups import marks_of
from tests.launchers.conftest import SOON_S, Ground
from tests.parts.cgroups import end

pytestmark = pytest.mark.anyio

PATIENT = StopStyle(grace_ms=60_000)


@pytest.fixture
def ground(caged: Ground) -> Ground:
    return caged


async def test_a_launch_that_fails_or_is_abandoned_leaves_no_cgroup(ground: Ground) -> None:
    gated = await ground.prepare("no-such-program")
    assert gated.cgroup
    assert Cgroup(Path(gated.cgroup)).populated()
    with pytest.raises(SpawnError):
        await gated.open()
    assert not Path(gated.cgroup).exists()
    gated = await ground.prepare("sleep", "600")
    await gated.abandon()
    assert gated.cgroup
    assert not Path(gated.cgroup).exists()


@pytest.mark.parametrize("hangs", ["_make", "join"])
async def test_an_engine_that_gets_its_cgroup_too_late_is_not_lost(
    ground: Ground, cgroup_root: Path, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    """What is in it then belongs to an instance that is known, with or without its main process."""
    goes_on = threading.Event()
    place, name = (cgroups, "_make") if hangs == "_make" else (Cgroup, "join")
    slow = getattr(place, name)

    def late(*args: Any) -> None:
        goes_on.wait(10)
        slow(*args)

    with monkeypatch.context() as patch:
        patch.setattr(cgroups, "DEADLINE_S", 0.2)
        patch.setattr(place, name, late)
        running = await ground.start("sleep", "600")
        goes_on.set()
    [recorded] = ground.places.values()
    assert recorded is not None
    if hangs == "join":
        with anyio.fail_after(SOON_S):
            while ground.pid(running) not in Cgroup(Path(recorded)).pids():
                await anyio.sleep(0.01)
    else:
        await anyio.sleep(0.3)
        assert not Path(recorded).exists(), "who is late with the directory puts nobody into it"
    assert await Cgroups(cgroup_root).strays({recorded}) == ()
    assert [it.pid for it in await running.members()] == [ground.pid(running)]
    receipt = await running.stop(PATIENT, 60_000)
    assert receipt.survivors == ()
    assert not Path(recorded).exists()


DAEMON = """
import os, signal, sys, anyio
from pathlib import Path
from tests.launchers.conftest import Ground
from supervisor.launchers.process import Cgroups, ProcessLauncher
async def main():
    cgroups = Cgroups(Path(sys.argv[2]))
    ground = Ground(Path(sys.argv[1]), ProcessLauncher(cgroups=cgroups), cgroups=cgroups)
    gated = await ground.prepare("sleep", "600")
    if sys.argv[3] == "open":
        await gated.open()
    print("\\n" + gated.cgroup, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
"""


def killed_daemon(ground: Ground, root: Path, then: str) -> Cgroup:
    """A daemon that is killed before it opens the gate, or after; and what it leaves."""
    argv = [sys.executable, "-c", DAEMON, str(ground.folder), str(root), then]
    ended = subprocess.run(argv, stdout=subprocess.PIPE, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    return Cgroup(Path(ended.stdout.decode().splitlines()[-1]))


async def test_what_a_killed_daemon_leaves_empty_is_removed(
    ground: Ground, cgroup_root: Path
) -> None:
    left = killed_daemon(ground, cgroup_root, "leave")
    assert left.path.exists()
    (cgroup_root / "probe-1").mkdir()
    assert await ground.launcher.strays(frozenset()) == ()
    assert list(cgroup_root.glob("*-*")) == []


async def test_what_a_killed_daemon_leaves_alive_is_told_and_left_alone(
    ground: Ground, cgroup_root: Path
) -> None:
    left = killed_daemon(ground, cgroup_root, "open")
    marks = marks_of(left)
    assert marks
    assert marks[0] == "one"
    assert await ground.launcher.strays(frozenset({str(left)})) == (), "a record names it"
    assert await ground.launcher.strays(frozenset()) == (
        Stray(name="one", place=str(left), nonce=marks[1], runtime="process"),
    )
    assert left.populated()

    # Whoever lives in there bears the mark, whatever its environment shows.
    pids = left.pids()
    assert {it.process.pid for it in await ground.launcher.bearers(Trace(name="one"))} >= pids
    for name, nonce, found in (("one", marks[1] + "x" * 20, True), ("two", None, False)):
        bearers = await ground.launcher.bearers(Trace(name=name, nonce=nonce))
        assert ({it.process.pid for it in bearers} == pids) == found
    end(left.path)
    assert await ground.launcher.strays(frozenset()) == ()


async def test_a_join_that_fails_costs_the_cgroup_and_not_the_launch(
    ground: Ground, cgroup_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ground.cgroups
    assert await ground.cgroups.probe()

    def refused(cgroup: Cgroup, pid: int) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Cgroup, "join", refused)
        running = await ground.start("sleep", "600")
    assert ground.places[ground.pid(running)] is None
    assert await running.liveness() == "alive"
    assert not cgroup_root.exists()
    await running.stop(PATIENT, 0)
    assert await running.owns_cgroup(1) == "unknown"


@pytest.mark.parametrize("broken", ["join", "kill", "mkdir"])
async def test_where_anything_fails_there_are_none(
    tmp_path: Path, cgroup_root: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def refused(*_: object) -> bool:
        raise PermissionError(13, "Permission denied")

    cgroups = Cgroups(cgroup_root)
    with monkeypatch.context() as patch:
        if broken == "join":
            patch.setattr(Cgroup, "join", refused)
        elif broken == "kill":
            patch.setattr(Cgroup, "kill", lambda _: False)
        else:
            cgroups = Cgroups(tmp_path / "no cgroup")
        assert not await cgroups.probe()
    assert not await cgroups.probe(), "found out once"
    ground = Ground(tmp_path, ProcessLauncher(cgroups=cgroups))
    running = await ground.start("true")
    assert ground.places[ground.pid(running)] is None
    await running.wait_exit()
    running.close()
