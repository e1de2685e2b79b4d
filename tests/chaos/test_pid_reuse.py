"""The pid in a record comes round to an innocent process, for real, in a namespace of its own."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from supervisor.contracts.event import Event, LaunchFailed, Reaped, Spawned, Stopped
from supervisor.launchers.process.procfs import read_stat
from tests.instances.children import run_child
from tests.lifecycle.house import A, is_running, opened, pid_of

CLONE_NEWPID, CLONE_NEWNS = 0x20000000, 0x00020000
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def in_a_pid_namespace(body: Callable[[], None]) -> None:
    """Run ``body`` as process 1 of a namespace, all of which ends with it."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a PID namespace needs root on Linux")

    def enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWPID | CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        first = os.fork()  # the first child is process 1 of it
        if first:
            _, status = os.waitpid(first, 0)
            assert os.waitstatus_to_exitcode(status) == 0, "the body says more"
            return
        for command in (
            ["mount", "--make-rprivate", "/"],
            ["mount", "-t", "proc", "proc", "/proc"],
        ):
            subprocess.run(command, check=True)
        assert os.getpid() == 1
        body()

    run_child(enter)


def give_out(pid: int) -> subprocess.Popen[bytes]:
    """Start a process that has this very pid, and dies of any signal."""
    for _ in range(50):
        LAST_PID.write_text(str(pid - 1))
        innocent = subprocess.Popen(["sleep", "600"])
        if innocent.pid == pid:
            return innocent
        innocent.kill()
        innocent.wait()
    raise AssertionError(f"pid {pid} cannot be had")


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert read_stat(child) is None


TOLD: dict[str, type[Event]] = {"running": Reaped, "loading": LaunchFailed, "stopping": Stopped}


@pytest.mark.parametrize("exact", [True, False], ids=["by inode", "by start"])
@pytest.mark.parametrize("intent", TOLD)
def test_whoever_has_the_pid_now_is_left_alone(tmp_path: Path, intent: str, exact: bool) -> None:
    """PID-1: never signalled; the engine is known to be gone, and its lease is free."""

    async def scene() -> None:
        async with opened(tmp_path, clean=False) as home:
            load = 60.0 if intent == "loading" else 0.0
            wait = intent != "loading"
            await home.launch(binary=home.stub(load=load), devices=(A,), wait=wait)
            await home.seen(Spawned)
            pid = pid_of(home.supervisor.get("x"))
        end(pid)
        rewrite(tmp_path, intent, exact)
        await anyio.sleep(0.02)  # a tick of field 22
        innocent = give_out(pid)
        try:
            async with opened(tmp_path) as home:
                await home.seen(TOLD[intent])
                await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=10_000)
                await home.again(devices=(A,))
                assert innocent.poll() is None
                assert is_running(pid)
        finally:
            innocent.kill()
            innocent.wait()

    in_a_pid_namespace(lambda: anyio.run(scene))


def rewrite(folder: Path, intent: str, exact: bool) -> None:
    """The record as a daemon left it that died in a stop, or on a kernel without pidfs."""
    path = folder / "state" / "instances" / "x.json"
    tree = msgspec.json.decode(path.read_bytes())
    if intent == "stopping":
        tree["supervision"]["intent"] = "stopping"
    if not exact:
        tree["ref"].pop("pidfdInode", None)
    path.write_bytes(msgspec.json.encode(tree))
