"""What an engine leaves behind, and whom its end must not touch, with the daemon in the middle."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from supervisor.client import RpcError
from supervisor.contracts.failure import ExitedEarly
from tests.daemon.engined import Engined, stop
from tests.daemon.test_life import wait_for
from tests.lifecycle.house import A, B, is_running, pid_of
from tests.parts.fake_nvml import FakeNvml, gpu, uuid

CYCLES = int(os.environ.get("ENGINE_SUPERVISOR_TEST_ROUNDS") or 40)


def children(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def test_an_end_touches_neither_siblings_nor_the_daemons_helper(
    engined: Engined, nvml: FakeNvml
) -> None:
    """ORP-4: one instance is stopped, one crashes; a third, the daemon and its child go on."""
    told = engined.config.read_text()
    engined.config.write_text(told.partition("[devices]")[0])
    nvml.say(*(gpu(at) for at in range(3)))
    env: dict[str, Any] = {**nvml.env}
    client = engined.start(**env)
    bystander = client.launch(engined.params("bystander", devices=(uuid(2),)))
    helpers = [
        it for it in psutil.Process(engined.pid).children() if "devices.child" in str(it.cmdline())
    ]
    assert len(helpers) == 1
    client.launch(engined.params("a", devices=(uuid(0),)))
    assert stop(client, "a").state == "exited"
    crashing = engined.stub(exit_after=0.5, exit_by="SIGKILL", children="session,detached")
    client.launch(engined.params("b", devices=(uuid(1),), binary=crashing))
    assert client.wait("b", "exited", timeout_ms=20_000).state == "exited"
    assert client.info().pid == engined.pid
    now = client.get("bystander")
    assert (now.state, pid_of(now)) == ("ready", pid_of(bystander))
    assert engined.story("bystander")[-1] == "ready"
    assert [it for it in helpers if not it.is_running()] == []
    stop(client, "bystander")


def test_a_child_that_holds_the_output_does_not_delay_the_news(engined: Engined) -> None:
    """ORP-6: exit code 7 is told although a sleeper has both streams; and that one is gone then."""
    pids = engined.folder / "children"
    client = engined.start()
    binary = engined.stub(
        children="session", children_file=str(pids), load=60, exit_after=1, exit_code=7
    )
    began = time.monotonic()
    with pytest.raises(RpcError) as refused:
        client.launch(engined.params(binary=binary))
    assert time.monotonic() - began < 3
    failure = refused.value.failure
    assert isinstance(failure, ExitedEarly)
    assert failure.exit_code == 7
    assert not is_running(children(pids)[0])
    assert engined.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_nor_does_it_hold_up_a_shutdown(engined: Engined, end: signal.Signals) -> None:
    """ORP-6: the daemon leaves while a deaf one still has its grace; the next daemon sweeps it."""
    pids = engined.folder / "children"
    client = engined.start()
    binary = engined.stub(children="session+deaf", children_file=str(pids), load=60, exit_after=0.3)
    client.launch(engined.params(binary=binary, wait=False))
    wait_for(lambda: "launch-failed" in engined.story())
    [sleeper] = children(pids)
    assert is_running(sleeper)
    began = time.monotonic()
    assert engined.end(end) == 0
    assert time.monotonic() - began < 3
    assert is_running(sleeper)
    client = engined.start()
    assert client.wait("x", "exited", timeout_ms=20_000).state == "exited"
    assert not is_running(sleeper)
    assert {it.device: it.holders for it in client.leases().leases}[A] == ()
    assert engined.records() == []


def test_a_daemon_that_was_killed_once_keeps_no_descriptor_of_any_launch(engined: Engined) -> None:
    """PRT-3: so many launches and stops after a rebind, with an engine that was adopted.

    A short form by default; ``ENGINE_SUPERVISOR_TEST_ROUNDS=200`` is the whole of it.
    """
    client = engined.start()
    client.launch(engined.params("adopted", devices=(B,)))
    engined.end(signal.SIGKILL)
    client, binary = engined.start(), engined.stub()

    def cycle() -> None:
        assert client.launch(engined.params(binary=binary)).state == "ready"
        assert stop(client).state == "exited"

    for _ in range(3):
        cycle()  # threads, and what is opened once
    before = len(os.listdir(f"/proc/{engined.pid}/fd"))
    for _ in range(CYCLES):
        cycle()
    assert len(os.listdir(f"/proc/{engined.pid}/fd")) <= before + 3
    assert client.get("adopted").state == "ready"
    stop(client, "adopted")
