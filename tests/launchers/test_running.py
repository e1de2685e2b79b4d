"""What an engine is started with, and how its end is seen."""

# Short looks at /proc and at children of the test, which block nothing for long.
# ruff: noqa: ASYNC110, ASYNC221, ASYNC222, ASYNC240

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.instance import ProcessHandle
from supervisor.launchers.base import Exit
from supervisor.launchers.process.identity import start_token
from supervisor.launchers.process.procfs import NONCE_VARIABLE, read_boot_id, read_stat
from tests.launchers.conftest import SOON_S, Ground, alive, descriptors, facts, free_port, listens
from tests.parts.stub import interpreter, stub_binary

pytestmark = pytest.mark.anyio


async def test_an_engine_gets_its_environment_and_nothing_else(ground: Ground) -> None:
    dump = ground.folder / "dump"
    env = ground.env | {"EMPTY": "", "ODD": "a=b\nc \udcff", "LD_PRELOAD": ""}
    text = "a b'\"$HOME %s \n é 🙂"
    binary = stub_binary(ground.folder, health="never", dump=str(dump))
    await ground.start(binary, "-m", text, "--port=1", workdir="/usr", env=env)
    seen = await facts(dump)
    seen["env"].pop("LC_CTYPE", None)  # set by Python in the stub engine itself
    assert seen["env"] == env
    assert seen["argv"] == [binary, "-m", text, "--port=1"]
    assert seen["cwd"] == "/usr"


async def test_an_engine_inherits_three_descriptors(ground: Ground) -> None:
    """PRT-3."""
    dump = ground.folder / "dump"
    listener = socket.create_server(("127.0.0.1", 0))
    os.set_inheritable(listener.fileno(), True)
    with listener:
        await ground.start(stub_binary(ground.folder, health="never", dump=str(dump)))
        fds = (await facts(dump))["fds"]
    log = str(ground.folder / "engine.log")
    # A fourth is the dump's own look at the folder.
    assert {key: where for key, where in fds.items() if not where.startswith("/proc/")} == {
        "0": "/dev/null",
        "1": log,
        "2": log,
    }


GLIBC_SIGNALS = 0b11 << 31
"""32 and 33: its own posix_spawn leaves them ignored, and it lets nobody set them."""

SELFISH = """
import os, resource, signal, sys, anyio
from contextlib import suppress
from pathlib import Path
from tests.launchers.conftest import Ground
from supervisor.launchers.process import ProcessLauncher
async def main():
    ground = Ground(Path(sys.argv[1]), ProcessLauncher())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 100, hard))
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGRTMIN})
    with suppress(PermissionError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("-500")
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -5)
    running = await ground.start("/bin/sh", "-c", "cat /proc/self/status /proc/self/limits "
        "/proc/self/oom_score_adj; umask; cut -d' ' -f19 /proc/self/stat")
    await running.wait_exit()
    running.close()
    print(soft)
anyio.run(main)
"""


async def test_what_the_daemon_set_for_itself_is_reset(ground: Ground) -> None:
    """In a daemon of its own, for what it changes cannot be given back."""
    ended = subprocess.run(
        [sys.executable, "-c", SELFISH, str(ground.folder)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    lines = ground.log.splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    # A shell with one command changes none of them, so this is what it was started with.
    assert int(status["SigIgn"], 16) & ~GLIBC_SIGNALS == int(status["SigBlk"], 16) == 0
    (files,) = [line for line in lines if line.startswith("Max open files")]
    assert files.split()[3] == ended.stdout.decode().strip()
    assert lines[-3:] == ["0", "0022", "0"]


async def test_a_kindness_the_daemon_was_started_with_stays(ground: Ground) -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    dump = ground.folder / "dump"
    await ground.start(stub_binary(ground.folder, health="never", dump=str(dump)))
    assert (await facts(dump))["nice"] == max(nice, 0)


async def test_both_streams_are_appended_to_a_private_log(ground: Ground) -> None:
    """STR-3."""
    path = ground.folder / "engine.log"
    running = await ground.start("sh", "-c", "echo out; echo err >&2")
    await running.wait_exit()
    assert path.read_text() == "out\nerr\n"
    assert path.stat().st_mode & 0o777 == 0o600
    os.truncate(path, 0)
    await (await ground.start("sh", "-c", "echo again")).wait_exit()
    assert path.read_text() == "again\n"


async def test_output_of_any_kind_stalls_nobody(ground: Ground) -> None:
    """LOG-1."""
    running = await ground.stub(
        flood=3_000_000, output="long-line,cr-only,invalid-utf8", health="ok", exit_after=0.1
    )
    with anyio.fail_after(SOON_S):
        assert await running.wait_exit() == Exit(0, None)
    data = (ground.folder / "engine.log").read_bytes()
    assert len(data) > 3_300_000
    assert b"\xff\xfe caf\xc3 \xf0\x9f\x98\n" in data


@pytest.mark.parametrize("code", [0, 1, 7, 111, 112, 255])
async def test_exit_codes(ground: Ground, code: int) -> None:
    running = await ground.start("sh", "-c", f"exit {code}")
    assert await running.wait_exit() == Exit(code, None)
    assert await running.wait_exit() == Exit(code, None)
    assert await running.liveness() == "gone"
    assert not os.path.exists(f"/proc/{ground.pid(running)}")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM", "SIGABRT", "SIGPIPE"])
async def test_deaths_by_signal(ground: Ground, name: str) -> None:
    running = await ground.start("sleep", "600")
    os.kill(ground.pid(running), getattr(signal, name))
    assert await running.wait_exit() == Exit(None, name)


async def test_realtime_signals_have_names_too(ground: Ground) -> None:
    running = await ground.start("sleep", "600")
    os.kill(ground.pid(running), signal.SIGRTMIN + 3)
    assert await running.wait_exit() == Exit(None, f"SIG{signal.SIGRTMIN + 3}")


async def test_many_wait_for_one_end(ground: Ground) -> None:
    running = await ground.start("sleep", "600")
    exits: list[Exit] = []

    async def wait() -> None:
        exits.append(await running.wait_exit())

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(wait)
        await anyio.sleep(0.05)
        os.kill(ground.pid(running), signal.SIGKILL)
    assert exits == [Exit(None, "SIGKILL")] * 5


async def test_the_end_is_told_soon(ground: Ground) -> None:
    lags = []
    for _ in range(5):
        running = await ground.start("sleep", "600")
        began = time.monotonic()
        os.kill(ground.pid(running), signal.SIGKILL)
        await running.wait_exit()
        lags.append(time.monotonic() - began)
    assert sorted(lags)[2] < 0.1


async def test_the_end_does_not_wait_for_a_log_that_others_hold(ground: Ground) -> None:
    """ORP-6."""
    running = await ground.start("sh", "-c", "sleep 300 & exit 7")
    with anyio.fail_after(SOON_S):
        assert await running.wait_exit() == Exit(7, None)
    assert await running.liveness() == "leaderGone"


async def test_an_exit_that_another_took_is_not_made_up(ground: Ground) -> None:
    running = await ground.start("sleep", "600")
    os.kill(ground.pid(running), signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(ground.pid(running), 0)
    assert await running.wait_exit() in (Exit(None, None), Exit(None, "SIGKILL"))


def kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)))


PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen(sys.argv[2:], start_new_session=True)
print(child.pid, flush=True)
if sys.argv[1] == "reaps":
    child.wait()
time.sleep(600)
"""


@contextlib.contextmanager
def someone_elses(ground: Ground, manner: str, *argv: str) -> Iterator[ProcessHandle]:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, manner, *argv], stdout=subprocess.PIPE, env=ground.env
    ) as parent:
        try:
            assert parent.stdout
            pid = int(parent.stdout.readline())
            stat = read_stat(pid)
            assert stat
            yield ProcessHandle(pid=pid, start_token=start_token(read_boot_id(), stat.start))
        finally:
            parent.kill()


@pytest.mark.skipif(kernel() < (6, 15), reason="the kernel keeps no exit status for others")
async def test_the_exit_code_of_an_adopted_engine(ground: Ground) -> None:
    with someone_elses(ground, "reaps", "sh", "-c", "sleep 2; exit 37") as handle:
        running = await ground.launcher.attach(handle, ground.nonce)
        ground.started.append(running)
        assert await running.liveness() == "alive"
        assert await running.wait_exit() == Exit(37, None)
        assert await running.liveness() == "gone"


async def test_a_zombie_is_dead_and_tells_how_it_ended(ground: Ground) -> None:
    """ORP-7."""
    with someone_elses(ground, "neglects", "sleep", "600") as handle:
        running = await ground.launcher.attach(handle, ground.nonce)
        ground.started.append(running)
        began = time.monotonic()
        os.kill(handle.pid, signal.SIGKILL)
        assert await running.wait_exit() == Exit(None, "SIGKILL")
        assert time.monotonic() - began < SOON_S / 2
        assert (stat := read_stat(handle.pid))
        assert stat.state == "Z"
        assert await running.liveness() == "gone"
        assert await running.members() == ()

        again = await ground.launcher.attach(handle, ground.nonce)
        ground.started.append(again)
        assert await again.liveness() == "gone"
        assert await again.wait_exit() == Exit(None, None)


async def test_a_process_whose_main_thread_ended_is_alive(ground: Ground) -> None:
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"
    )
    running = await ground.start(interpreter(), "-c", program)
    with anyio.fail_after(SOON_S):
        while (stat := read_stat(ground.pid(running))) and stat.state != "Z":
            await anyio.sleep(0.01)
    assert await running.liveness() == "alive"
    assert [member.pid for member in await running.members()] == [ground.pid(running)]


async def test_a_stopped_engine_is_alive(ground: Ground) -> None:
    running = await ground.stub()
    os.kill(ground.pid(running), signal.SIGSTOP)
    assert await running.liveness() == "alive"


async def test_closing_lets_waiters_go_and_leaves_the_engine(ground: Ground) -> None:
    running = await ground.start("sleep", "600")

    async def wait() -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await running.wait_exit()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.sleep(0.05)
        running.close()
        running.close()
    assert alive(ground.pid(running))
    again = await ground.attach(running)
    assert await again.liveness() == "alive"


async def test_an_engine_attached_to_is_seen_to_end(ground: Ground) -> None:
    running = await ground.start("sleep", "600")
    running.close()
    again = await ground.attach(running)
    os.kill(ground.pid(running), signal.SIGTERM)
    assert await again.wait_exit() == Exit(None, "SIGTERM")


async def test_two_hundred_launches_leave_no_descriptor_and_no_cgroup(ground: Ground) -> None:
    first = await ground.start("true")
    await first.wait_exit()
    assert await first.liveness() == "gone"
    first.close()
    before = descriptors()

    async def cycle() -> None:
        for _ in range(50):
            nonce = uuid.uuid4().hex
            env = ground.env | {NONCE_VARIABLE: nonce}
            log = str(ground.folder / f"{nonce}.log")
            gated = await ground.prepare("true", nonce=nonce, env=env, log_path=log)
            running = await gated.open()
            assert await running.wait_exit() == Exit(0, None)
            assert await running.liveness() == "gone"
            running.close()

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(cycle)
    assert descriptors() == before


async def test_a_spawn_hardly_blocks_the_loop(ground: Ground) -> None:
    """The bound is far off, for the machine is shared; it tells a fork or a wait from a vfork."""
    worst: list[float] = []

    async def watch() -> None:
        while True:
            began = time.monotonic()
            await anyio.sleep(0.001)
            worst.append(time.monotonic() - began - 0.001)

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        for _ in range(10):
            gated = await ground.prepare("true")
            running = await gated.open()
            await running.wait_exit()
            await running.liveness()
            running.close()
        group.cancel_scope.cancel()
    assert sorted(worst)[len(worst) * 9 // 10] < 0.05


async def test_a_stub_serves_as_any_engine(ground: Ground) -> None:
    """The part that other tests stand on."""
    port = free_port()
    place = Path(f"/tmp/stub-{ground.nonce[:12]}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(place))
        told.settimeout(SOON_S)
        binary = stub_binary(ground.folder, "vllm", load=0.2, announce=str(place))
        running = await ground.start(binary, "serve", "--port", str(port), "--unknown-flag")
        pid, moment = (await anyio.to_thread.run_sync(told.recv, 100)).split()
    place.unlink()
    assert int(pid) == ground.pid(running)
    assert 0 <= time.monotonic_ns() - int(moment) < SOON_S * 1e9

    async def get(path: str) -> str:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return (await stream.receive()).decode()

    with anyio.fail_after(SOON_S):
        await listens(ground)
        assert (await get("/health")).startswith("HTTP/1.1 503")
        while "503" in await get("/health"):
            await anyio.sleep(0.02)
        assert '{"status": "ok"}' in await get("/health")
