"""Whose a process is: the rule by itself, and against a real innocent process."""

# Short looks at /proc and at children of the test, which block nothing for long.
# ruff: noqa: ASYNC220

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from supervisor.contracts.engine import StopStyle
from supervisor.contracts.instance import ProcessHandle
from supervisor.launchers.base import CannotTellError, Exit, NotOursError, StopReceipt
from supervisor.launchers.process.identity import Seen, Verdict, judge, start_token, unique_inode
from supervisor.launchers.process.procfs import (
    NONCE_VARIABLE,
    find_nonce,
    parse_stat,
    read_boot_id,
    read_stat,
)
from tests.launchers.conftest import SOON_S, Ground, alive

BOOT = "5f0e7c1a-0000-4000-8000-000000000001"
HANDLE = ProcessHandle(pid=4242, start_token=f"{BOOT}:777", pidfd_inode=99)
WITHOUT_INODE = ProcessHandle(pid=4242, start_token=f"{BOOT}:777")
SEEN = Seen(inode=99, start=777, nonce="mine")
OURS, GONE, NOT_OURS, CANNOT_TELL = Verdict


@pytest.mark.parametrize(
    ("handle", "seen", "verdict"),
    [
        (HANDLE, SEEN, OURS),
        (HANDLE, None, GONE),
        (HANDLE, replace(SEEN, nonce=None), OURS),
        (HANDLE, replace(SEEN, start=None, nonce=None), OURS),
        (HANDLE, replace(SEEN, nonce="other"), NOT_OURS),
        (HANDLE, replace(SEEN, inode=100), GONE),
        (HANDLE, replace(SEEN, inode=100, nonce="other"), GONE),
        (HANDLE, replace(SEEN, start=778), GONE),
        (HANDLE, replace(SEEN, inode=None), OURS),
        (HANDLE, replace(SEEN, inode=None, nonce=None), CANNOT_TELL),
        (HANDLE, replace(SEEN, inode=None, start=None), CANNOT_TELL),
        (WITHOUT_INODE, SEEN, OURS),
        (WITHOUT_INODE, replace(SEEN, nonce=None), CANNOT_TELL),
        (WITHOUT_INODE, replace(SEEN, nonce=None, inside=True), OURS),
        (WITHOUT_INODE, replace(SEEN, nonce="other"), NOT_OURS),
        (WITHOUT_INODE, replace(SEEN, nonce="other", inside=True), NOT_OURS),
        (WITHOUT_INODE, replace(SEEN, start=778, inside=True), GONE),
        (WITHOUT_INODE, replace(SEEN, start=None, inside=True), CANNOT_TELL),
        (WITHOUT_INODE, replace(SEEN, start=778), GONE),
        (WITHOUT_INODE, replace(SEEN, start=None), CANNOT_TELL),
        (msgspec.structs.replace(HANDLE, start_token=None), SEEN, CANNOT_TELL),
        (
            msgspec.structs.replace(HANDLE, start_token=None),
            replace(SEEN, inside=True),
            CANNOT_TELL,
        ),
        (msgspec.structs.replace(HANDLE, start_token=None), None, GONE),
        (msgspec.structs.replace(HANDLE, start_token="777"), SEEN, CANNOT_TELL),
        (msgspec.structs.replace(HANDLE, start_token=f"{BOOT}:x"), SEEN, CANNOT_TELL),
        (msgspec.structs.replace(HANDLE, start_token="another-boot:777"), SEEN, GONE),
        (msgspec.structs.replace(HANDLE, pid=1), SEEN, GONE),
        (msgspec.structs.replace(HANDLE, pid=0), SEEN, GONE),
        (msgspec.structs.replace(HANDLE, pid=-4242), SEEN, GONE),
        (msgspec.structs.replace(HANDLE, pid=os.getpid()), SEEN, GONE),
    ],
)
def test_the_rule(handle: ProcessHandle, seen: Seen | None, verdict: Verdict) -> None:
    assert judge(handle, "mine", BOOT, seen) is verdict


numbers = st.integers(min_value=0, max_value=3)
maybe = st.none() | numbers
nonces = st.none() | st.sampled_from(["mine", "other"])


@given(
    pid=st.integers(min_value=-2, max_value=4),
    inode=maybe,
    token=st.none() | st.builds("{}:{}".format, st.sampled_from([BOOT, "b"]), numbers),
    seen=st.none() | st.builds(Seen, inode=maybe, start=maybe, nonce=nonces, inside=st.booleans()),
)
def test_nothing_is_ours_without_proof(
    pid: int, inode: int | None, token: str | None, seen: Seen | None
) -> None:
    handle = ProcessHandle(
        pid=pid, start_token=token, pidfd_inode=UNSET if inode is None else inode
    )
    if judge(handle, "mine", BOOT, seen) is OURS:
        assert pid > 1
        assert seen
        assert token
        assert seen.nonce in (None, "mine")
        assert seen.start is None or token == f"{BOOT}:{seen.start}"
        exact = inode is not None and inode == seen.inode
        assert exact or seen.nonce == "mine" or seen.inside


def test_a_name_may_hold_anything() -> None:
    line = b"42 (a) R 1 (b\n) S 7 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 12345 0 0"
    stat = parse_stat(line)
    assert stat
    assert (stat.name, stat.state, stat.ppid, stat.start) == ("a) R 1 (b\n", "S", 7, 12345)
    assert parse_stat(b"") is parse_stat(b"42 (x") is parse_stat(b"42 (x) S 1") is None


@given(st.binary())
def test_any_bytes_can_be_read(data: bytes) -> None:
    parse_stat(data)
    find_nonce(data)


def test_a_nonce_is_a_whole_variable() -> None:
    name = NONCE_VARIABLE.encode()
    assert find_nonce(b"A=1\0" + name + b"=n\0B=2\0") == "n"
    assert find_nonce(b"X" + name + b"=n\0") is None
    assert find_nonce(b"VLLM::Worker\0\0\0") is None


@pytest.fixture
def innocent() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that no launcher started."""
    with subprocess.Popen(["sleep", "600"], env={}) as process:
        yield process
        assert process.poll() is None
        process.kill()


def truth(pid: int) -> ProcessHandle:
    stat = read_stat(pid)
    assert stat
    pidfd = os.pidfd_open(pid)
    inode = unique_inode(pidfd)
    os.close(pidfd)
    return ProcessHandle(
        pid=pid,
        start_token=start_token(read_boot_id(), stat.start),
        pidfd_inode=UNSET if inode is None else inode,
    )


@pytest.mark.anyio
async def test_pid_1_a_wrong_token_is_gone(
    ground: Ground, innocent: "subprocess.Popen[bytes]"
) -> None:
    """PID-1."""
    right = truth(innocent.pid)
    wrong = [
        msgspec.structs.replace(right, start_token=start_token(read_boot_id(), 5)),
        msgspec.structs.replace(right, start_token=start_token("another-boot", 5)),
        msgspec.structs.replace(right, pid=1),
        msgspec.structs.replace(right, pid=0),
        msgspec.structs.replace(right, pid=-innocent.pid),
        msgspec.structs.replace(right, pid=os.getpid()),
        msgspec.structs.replace(right, pid=2**22 + 1),
    ]
    if right.pidfd_inode is not UNSET:
        wrong.append(msgspec.structs.replace(right, pidfd_inode=right.pidfd_inode + 1))
    for handle in wrong:
        running = await ground.launcher.attach(handle, ground.nonce)
        ground.started.append(running)
        assert await running.liveness() == "gone", handle
        assert await running.members() == ()
        assert await running.owns_socket(5) == "foreign"
        assert await running.wait_exit() == Exit(None, None)
        assert await running.stop(StopStyle(), 0) == StopReceipt(exit=None)


@pytest.mark.anyio
@pytest.mark.parametrize("token", ["its", "the-engines", None])
async def test_pid_1_process_1_is_no_engine(ground: Ground, token: str | None) -> None:
    """PID-1: known to be gone, and never a member; who carries the launch's nonce still is one."""
    engine = await ground.stub()
    tokens = {"its": start_token(read_boot_id(), start_of_process(1))}
    tokens["the-engines"] = truth(ground.pid(engine)).start_token or ""
    handle = ProcessHandle(pid=1, start_token=tokens[token] if token else None)
    running = await ground.launcher.attach(handle, ground.nonce)
    ground.started.append(running)
    assert await running.wait_exit() == Exit(None, None)
    assert await running.liveness() == "leaderGone"
    assert [it.pid for it in await running.members()] == [ground.pid(engine)]
    receipt = await running.stop(StopStyle(), 5_000)
    assert [it.pid for it in receipt.swept] == [ground.pid(engine)]
    assert await running.liveness() == "gone"


def start_of_process(pid: int) -> int:
    stat = read_stat(pid)
    assert stat
    return stat.start


@pytest.mark.anyio
async def test_pid_1_a_different_nonce_is_refused(ground: Ground) -> None:
    """PID-1."""
    with subprocess.Popen(["sleep", "600"], env={NONCE_VARIABLE: "another"}) as process:
        try:
            # Popen returns in the middle of the exec, before the environment is in its place.
            while not Path(f"/proc/{process.pid}/environ").read_bytes():  # noqa: ASYNC110, ASYNC240
                await anyio.sleep(0.001)
            for inode in (truth(process.pid).pidfd_inode, UNSET):
                handle = msgspec.structs.replace(truth(process.pid), pidfd_inode=inode)
                running = await ground.launcher.attach(handle, ground.nonce)
                assert await running.liveness() == "unknown"
                assert await running.owns_socket(5) == "unknown"
                with pytest.raises(NotOursError):
                    await running.stop(StopStyle(), 0)
                running.close()
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.anyio
async def test_pid_1_no_token_cannot_be_told(
    ground: Ground, innocent: "subprocess.Popen[bytes]"
) -> None:
    """PID-1."""
    running = await ground.launcher.attach(
        msgspec.structs.replace(truth(innocent.pid), start_token=None), ground.nonce
    )
    assert await running.liveness() == "unknown"
    with pytest.raises(CannotTellError):
        await running.stop(StopStyle(), 0)
    running.close()


@pytest.mark.anyio
async def test_a_doubt_ends_with_the_process(ground: Ground) -> None:
    with subprocess.Popen(["sleep", "600"], env={}) as process:
        handle = msgspec.structs.replace(truth(process.pid), start_token=None)
        running = await ground.launcher.attach(handle, ground.nonce)
        assert await running.liveness() == "unknown"
        process.kill()
        with anyio.fail_after(SOON_S):
            assert await running.wait_exit() == Exit(None, None)
        assert await running.liveness() == "gone"
        running.close()


@pytest.mark.anyio
async def test_a_pid_that_cannot_be_opened_cannot_be_told(
    ground: Ground, innocent: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int, flags: int = 0) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refused)
        running = await ground.launcher.attach(truth_without_pidfd(innocent.pid), ground.nonce)
        assert await running.liveness() == "unknown"
        with pytest.raises(CannotTellError):
            await running.stop(StopStyle(), 0)
    running.close()
    assert alive(innocent.pid)


def truth_without_pidfd(pid: int) -> ProcessHandle:
    stat = read_stat(pid)
    assert stat
    return ProcessHandle(pid=pid, start_token=start_token(read_boot_id(), stat.start))
