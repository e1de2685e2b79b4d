"""Records that name a process which is no engine of ours, and a real daemon (PID-1, ORP-7)."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from supervisor.client import RpcError
from supervisor.contracts import rpc
from supervisor.contracts.failure import NoCapacity
from supervisor.contracts.instance import InstanceRecord, ProcessHandle
from supervisor.contracts.rpc import DrainParams, StopParams
from supervisor.launchers.process.identity import start_token
from supervisor.launchers.process.procfs import NONCE_VARIABLE, read_boot_id, read_stat
from tests.daemon.engined import Engined, stop
from tests.lifecycle.house import A, B, is_running, pid_of

ANOTHER = "f" * 32


def handle(pid: int) -> ProcessHandle:
    """The true one of a process, as a kernel without pidfs lets it be written."""
    stat = read_stat(pid)
    assert stat
    return ProcessHandle(pid=pid, start_token=start_token(read_boot_id(), stat.start))


@contextmanager
def sleeping(**env: str) -> Iterator[int]:
    """A process that no daemon started, and that every test must leave alive."""
    with subprocess.Popen(["sleep", "600"], env=env) as process:
        try:
            yield process.pid
            assert process.poll() is None
        finally:
            process.kill()


def forge(engined: Engined, refs: dict[str, tuple[ProcessHandle, str]]) -> None:
    """Leave a record of a ready engine for each name, with that handle and that device.

    They are copies of what a daemon wrote about an engine that is dead by now.
    """
    client = engined.start()
    pid = pid_of(client.launch(engined.params()))
    engined.end(signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    folder = engined.folder / "state" / "instances"
    path = folder / "x.json"
    real = msgspec.json.decode(path.read_bytes(), type=InstanceRecord)
    path.unlink()
    for number, (name, (ref, device)) in enumerate(refs.items()):
        supervision = real.supervision
        assert supervision
        record = replace(
            real,
            name=name,
            nonce=f"{number:032x}",
            port=real.port + number,
            ref=ref,
            devices=(device,),
            supervision=replace(
                supervision, cgroup=None, launch=replace(supervision.launch, name=name)
            ),
        )
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(record))


def refused_stop(client: Any, name: str) -> int:
    with pytest.raises(RpcError) as refused:
        client.stop(StopParams(name=name, grace_ms=0))
    return refused.value.code


def test_a_record_of_somebody_elses_process_ends_nobody(engined: Engined) -> None:
    """PID-1: a wrong start, a wrong nonce, no start at all; and process 1, which no engine is."""
    with sleeping() as pid, sleeping(**{NONCE_VARIABLE: ANOTHER}) as marked:
        right = handle(pid)
        forge(
            engined,
            {
                "wrong-token": (
                    replace(right, start_token=start_token(read_boot_id(), 5)),
                    "cpu:0",
                ),
                "wrong-nonce": (handle(marked), B),
                "no-token": (replace(right, start_token=None), A),
                "init": (ProcessHandle(pid=1, start_token=start_token(read_boot_id(), 1)), "cpu:0"),
            },
        )
        client = engined.start()
        assert client.wait("wrong-token", "exited", timeout_ms=10_000).state == "exited"
        assert stop(client, "wrong-token").state == "exited"
        assert client.wait("init", "exited", timeout_ms=10_000).state == "exited"
        assert stop(client, "init").state == "exited"
        assert "record-quarantined" not in {it["kind"] for it in engined.events()}
        assert refused_stop(client, "wrong-nonce") == rpc.NOT_OURS
        assert refused_stop(client, "no-token") == rpc.CANNOT_TELL
        assert set(client.drain(DrainParams(grace_ms=0)).failed) == {"wrong-nonce", "no-token"}

        listed = {it.record.name: it.state for it in client.list().instances}
        assert set(listed) == {"wrong-nonce", "no-token"}
        assert "exited" not in listed.values()
        held = {it.device: [one.name for one in it.holders] for it in client.leases().leases}
        assert held == {A: ["no-token"], B: ["wrong-nonce"], "cpu:0": []}
        assert engined.records() == ["no-token.json", "wrong-nonce.json"]
        with pytest.raises(RpcError) as taken:
            client.launch(engined.params("y", devices=(A,)))
        assert isinstance(taken.value.failure, NoCapacity)
        assert is_running(pid)
        assert is_running(marked)


def test_a_zombie_is_dead_and_holds_nothing(engined: Engined) -> None:
    """ORP-7: it still has its pid and its start, and no command line and no environment."""
    zombie = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        forge(engined, {"x": (handle(zombie.pid), A)})
        client = engined.start()
        assert client.wait("x", "exited", timeout_ms=10_000).state == "exited"
        assert {it.device: it.holders for it in client.leases().leases}[A] == ()
        assert zombie.pid not in {it.pid for it in client.detect().engines}
        stat = read_stat(zombie.pid)
        assert stat
        assert stat.state == "Z"
        assert client.launch(engined.params()).state == "ready"
        stop(client)
    finally:
        zombie.wait()
