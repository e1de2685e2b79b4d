"""The gate: nothing of the engine before it opens, and the true cause when it cannot start."""

# Short looks at /proc and at children of the test, which block nothing for long.
# ruff: noqa: ASYNC222, ASYNC230, ASYNC240

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from msgspec import UNSET

from supervisor.contracts.instance import ProcessHandle
from supervisor.launchers.base import Exit, SpawnError
from supervisor.launchers.process import ProcessLauncher, spawner
from supervisor.launchers.process.procfs import processes, read_boot_id
from supervisor.launchers.process.spawner import GATES
from tests.launchers.conftest import SOON_S, Ground, alive, appears, facts, gone
from tests.parts.stub import stub_binary

pytestmark = pytest.mark.anyio


async def test_nothing_of_the_engine_runs_before_the_gate_opens(ground: Ground) -> None:
    dump = ground.folder / "dump"
    gated = await ground.prepare(stub_binary(ground.folder, health="never", dump=str(dump)))
    assert isinstance(gated.ref, ProcessHandle)
    await anyio.sleep(0.2)
    assert alive(gated.ref.pid)
    assert not dump.exists()
    assert ground.log == ""

    running = await gated.open()
    ground.started.append(running)
    assert running.ref == gated.ref
    seen = await facts(dump)
    assert seen["pid"] == seen["sid"] == seen["pgid"] == gated.ref.pid


async def test_the_handle_tells_the_process_from_every_other(ground: Ground) -> None:
    gated = await ground.prepare("sleep", "600")
    handle = gated.ref
    assert isinstance(handle, ProcessHandle)
    assert handle.start_token
    boot, _, ticks = handle.start_token.partition(":")
    assert boot == read_boot_id()
    with open(f"/proc/{handle.pid}/stat") as file:
        assert ticks == file.read().rpartition(")")[2].split()[19]
    if handle.pidfd_inode is not UNSET:
        pidfd = os.pidfd_open(handle.pid)
        assert os.fstat(pidfd).st_ino == handle.pidfd_inode
        os.close(pidfd)
    await gated.abandon()


async def test_an_abandoned_stub_is_gone_and_its_engine_never_ran(ground: Ground) -> None:
    dump = ground.folder / "dump"
    gated = await ground.prepare(stub_binary(ground.folder, dump=str(dump)))
    assert isinstance(gated.ref, ProcessHandle)
    await gated.abandon()
    assert not os.path.exists(f"/proc/{gated.ref.pid}")
    assert not dump.exists()
    await gated.abandon()
    with pytest.raises(RuntimeError):
        await gated.open()


DAEMON = """
import os, signal, sys, anyio
from pathlib import Path
from tests.launchers.conftest import Ground
from supervisor.launchers.process import ProcessLauncher
async def main():
    ground = Ground(Path(sys.argv[1]), ProcessLauncher())
    gated = await ground.prepare(sys.argv[2])
    await anyio.sleep(float(sys.argv[3]))
    if sys.argv[4] == "open":
        await gated.open()
    print(gated.ref.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
"""


def run_daemon(folder: Path, binary: str, pause: float, then: str) -> int:
    """A daemon that starts a stub and is killed; the stub's pid."""
    ended = subprocess.run(
        [sys.executable, "-c", DAEMON, str(folder), binary, str(pause), then],
        stdout=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert ended.returncode == -signal.SIGKILL
    return int(ended.stdout)


@pytest.mark.parametrize("pause", [0.0, 0.2], ids=["while the stub starts", "while it waits"])
async def test_a_stub_ends_with_a_daemon_that_is_killed(ground: Ground, pause: float) -> None:
    dump = ground.folder / "dump"
    binary = stub_binary(ground.folder, dump=str(dump), health="never")
    await gone(run_daemon(ground.folder, binary, pause, "leave"))
    assert not dump.exists()


async def test_an_engine_outlives_a_daemon_that_is_killed(ground: Ground) -> None:
    dump = ground.folder / "dump"
    binary = stub_binary(ground.folder, dump=str(dump), health="never")
    pid = run_daemon(ground.folder, binary, 0.0, "open")
    await appears(dump)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
    await gone(pid)


async def test_an_engine_outlives_the_loop(tmp_path: Path) -> None:
    ground = Ground(tmp_path, ProcessLauncher())

    def another_loop() -> int:
        async def launch() -> int:
            running = await Ground(tmp_path, ProcessLauncher(), ground.nonce).start("sleep", "600")
            pid = ground.pid(running)
            running.close()
            return pid

        return anyio.run(launch)

    pid = await anyio.to_thread.run_sync(another_loop)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def script(folder: Path, text: str, mode: int = 0o755) -> str:
    path = folder / "program"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def fails(ground: Ground, *argv: str, workdir: str | None = None) -> SpawnError:
    gated = await ground.prepare(*argv, workdir=workdir)
    with pytest.raises(SpawnError) as caught:
        await gated.open()
    assert isinstance(gated.ref, ProcessHandle)
    assert not os.path.exists(f"/proc/{gated.ref.pid}")
    return caught.value


async def test_a_missing_binary(ground: Ground) -> None:
    for name in ("no-such-engine", str(ground.folder / "nothing"), "/etc/passwd/engine"):
        error = await fails(ground, name)
        assert error.reason == "binary-missing"
        assert name in error.detail


async def test_a_file_that_cannot_be_executed(ground: Ground) -> None:
    without_right = script(ground.folder, "#!/bin/sh\n", 0o644)
    assert (await fails(ground, without_right)).reason == "not-executable"
    no_format = script(ground.folder, "this is no program\n")
    assert (await fails(ground, no_format)).reason == "not-executable"
    assert (await fails(ground, str(ground.folder))).reason == "not-executable"


async def test_an_interpreter_that_is_missing_is_not_a_missing_binary(ground: Ground) -> None:
    path = script(ground.folder, "#!/no/such/python\n")
    error = await fails(ground, path)
    assert error.reason == "not-executable"
    assert "interpreter" in error.detail
    gated = await ground.prepare("program", env=ground.env | {"PATH": str(ground.folder)})
    with pytest.raises(SpawnError) as caught:
        await gated.open()
    assert caught.value.reason == "not-executable"


async def test_a_working_directory_that_is_missing_or_none(ground: Ground) -> None:
    error = await fails(ground, "true", workdir=str(ground.folder / "nowhere"))
    assert error.reason == "workdir-missing"
    assert (await fails(ground, "true", workdir="/etc/passwd")).reason == "workdir-missing"


async def test_a_bare_name_is_found_by_the_engines_own_path(ground: Ground) -> None:
    (ground.folder / "bin").mkdir()
    script(ground.folder / "bin", "#!/bin/sh\nexit 9\n")
    path = f"/no/such:{ground.folder / 'bin'}:/usr/bin"
    running = await ground.start("program", env=ground.env | {"PATH": path})
    assert await running.wait_exit() == Exit(9, None)


async def test_a_log_that_hangs_keeps_no_gate(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fifo stands for a mount that does not answer: opening it waits for a reader."""
    monkeypatch.setattr(spawner, "LOG_S", 0.05)
    fifo = ground.folder / "fifo"
    os.mkfifo(fifo)
    for _ in range(GATES + 1):
        with anyio.fail_after(5), pytest.raises(SpawnError, match="took longer") as caught:
            await ground.prepare("true", log_path=str(fifo))
        assert caught.value.reason == "log-unwritable"
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with anyio.fail_after(5):
        while spawner._logs.hung:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    assert os.read(reader, 1) == b"", "who came late was closed"
    os.close(reader)
    running = await ground.start("true")
    await running.wait_exit()


async def test_a_log_that_cannot_be_opened(ground: Ground) -> None:
    with pytest.raises(SpawnError) as caught:
        await ground.prepare("true", log_path=str(ground.folder / "no" / "log"))
    assert caught.value.reason == "log-unwritable"
    with pytest.raises(SpawnError) as caught:
        await ground.prepare("true", log_path=str(ground.folder))
    assert caught.value.reason == "log-unwritable"


async def test_a_full_disk_has_its_own_reason(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(SpawnError) as caught:
            await ground.prepare("true")
    assert caught.value.reason == "disk-full"


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        (("true", "a\0b"), {}),
        (("true",), {"KEY": "a\0b"}),
        (("true",), {"A=B": "c"}),
        (("true",), {"": "c"}),
        (("",), {}),
    ],
)
async def test_what_no_program_can_be_given_is_refused_at_once(
    ground: Ground, argv: tuple[str, ...], env: dict[str, str]
) -> None:
    with pytest.raises(SpawnError):
        await ground.prepare(*argv, env=env)


async def test_too_long_an_argument_list_is_told(ground: Ground) -> None:
    error = await fails(ground, "true", "x" * 3_000_000)
    assert "too long" in error.detail.lower()


async def test_a_large_environment_passes_the_socket(ground: Ground) -> None:
    large = {f"LARGE_{n}": "v" * 100_000 for n in range(10)}
    dump = ground.folder / "dump"
    binary = stub_binary(ground.folder, health="never", dump=str(dump))
    await ground.start(binary, env=ground.env | large)
    assert (await facts(dump))["env"].items() >= large.items()


async def test_a_stub_that_is_killed_is_no_engine(ground: Ground) -> None:
    gated = await ground.prepare("sleep", "600")
    assert isinstance(gated.ref, ProcessHandle)
    os.kill(gated.ref.pid, signal.SIGKILL)
    with pytest.raises(SpawnError) as caught:
        await gated.open()
    assert "SIGKILL" in caught.value.detail


async def test_only_so_many_gates_stand_open(ground: Ground) -> None:
    gates = [await ground.prepare("sleep", "600") for _ in range(4)]
    with anyio.move_on_after(0.2) as scope:
        await ground.prepare("sleep", "600")
    assert scope.cancelled_caught

    async with anyio.create_task_group() as group:
        group.start_soon(gates[0].abandon)
        with anyio.fail_after(SOON_S):
            late = await ground.prepare("sleep", "600")
    for gated in (*gates, late):
        await gated.abandon()


async def test_a_cancelled_open_leaves_an_engine_that_can_be_attached(ground: Ground) -> None:
    gated = await ground.prepare("sleep", "600")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await gated.open()
    assert scope.cancelled_caught
    running = await ground.launcher.attach(gated.ref, ground.nonce, gated.cgroup)
    ground.started.append(running)
    await anyio.sleep(0.2)
    assert [member.name for member in await running.members()] == ["sleep"]


def own_children() -> set[int]:
    return {stat.pid for stat in processes() if stat.ppid == os.getpid()}


async def test_no_process_and_no_descriptor_is_a_spawn_error(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = own_children()
    for target in ("subprocess.Popen", "socket.socketpair"):
        with monkeypatch.context() as patch:
            patch.setattr(target, refused)
            with pytest.raises(SpawnError):
                await ground.prepare("true")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refused)
        with pytest.raises(SpawnError):
            await ground.prepare("true")
    assert own_children() == before
