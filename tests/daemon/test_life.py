"""The daemon comes and goes; the engines stay (ADOPT-1)."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from supervisor.client import DaemonUnreachable, RpcError
from supervisor.contracts.failure import AlreadyRunning, ExitedEarly, SpawnFailed
from supervisor.contracts.rpc import SubscribeParams
from tests.daemon.engined import Engined, serves, stop
from tests.lifecycle.house import A, B, bearers, is_running, pid_of

ENDS = [signal.SIGTERM, signal.SIGINT, signal.SIGKILL]


@pytest.mark.parametrize("number", ENDS, ids=lambda it: it.name)
def test_engines_outlive_the_daemon(engined: Engined, number: signal.Signals) -> None:
    client = engined.start()
    ready = client.launch(engined.params("ready"))
    loading = engined.params("loading", devices=(B,), binary=engined.stub(load=1.5), wait=False)
    client.launch(loading)
    while client.get("loading").record.ref is None:
        time.sleep(0.01)
    pids = [pid_of(ready), pid_of(client.get("loading"))]
    status = engined.end(number)
    assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    with pytest.raises(DaemonUnreachable):
        client.info()  # the connection ended although engines live: they do not hold it (PRT-3)
    assert [is_running(pid) for pid in pids] == [True, True]
    assert serves(ready.record.port)

    client = engined.start()
    views = {it.record.name: it for it in client.list().instances}
    assert (views["ready"].state, views["ready"].record) == ("ready", ready.record)
    assert client.wait("loading", timeout_ms=10_000).state == "ready"
    assert [pid_of(client.get(it)) for it in ("ready", "loading")] == pids
    with pytest.raises(RpcError) as refused:
        client.launch(engined.params("ready"))
    assert refused.value.failure == AlreadyRunning(name="ready")
    assert engined.story("ready").count("spawned") == 1
    for name in ("ready", "loading"):
        assert stop(client, name).state == "exited"
    assert [is_running(pid) for pid in pids] == [False, False]
    assert {it.device: it.holders for it in client.leases().leases}[A] == ()
    assert engined.records() == []


def test_what_died_meanwhile_is_told_and_free(engined: Engined) -> None:
    client = engined.start()
    pid = pid_of(client.launch(engined.params()))
    engined.end(signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_running(pid))
    client = engined.start()
    assert client.wait("x", "exited", timeout_ms=10_000).state == "exited"
    wait_for(lambda: engined.story()[-1] == "reaped")
    assert client.launch(engined.params()).state == "ready"
    stop(client)


FATES = {
    "prepared": "launch-failed",
    "gated": "launch-failed",
    "recorded": "launch-failed",
    "spawned": "adopted",
    "ready": "adopted",
}


@pytest.mark.parametrize(("step", "fate"), FATES.items())
def test_a_daemon_that_dies_in_a_launch_leaves_an_engine_or_nothing(
    engined: Engined, step: str, fate: str
) -> None:
    """No engine without a record at any step, and each launch gets one outcome, told once."""
    marker = engined.folder / "ran"
    client = engined.start(DIE_AT=step)
    with pytest.raises(DaemonUnreachable):
        client.launch(engined.params(binary=engined.stub(up=str(marker), load=0.3)))
    assert engined.gone() == -signal.SIGKILL
    client = engined.start()
    if fate == "launch-failed":
        failure = client.wait("x", "exited", timeout_ms=10_000).failure
        assert isinstance(failure, SpawnFailed | ExitedEarly)
        assert not marker.exists()
        wait_for(lambda: not list(bearers(engined.nonces())))
        assert engined.records() == []
    else:
        assert client.wait("x", timeout_ms=10_000).state == "ready"
        assert len(list(bearers(engined.nonces()))) == 1
    wait_for(lambda: fate in engined.story())
    if fate == "adopted":
        wait_for(lambda: "ready" in engined.story())
        stop(client)
    outcomes = [it for it in engined.story() if it in ("ready", "launch-failed", "task-crashed")]
    assert outcomes == ["ready" if fate == "adopted" else fate]
    assert client.launch(engined.params()).state == "ready"
    stop(client)


@pytest.mark.parametrize("step", ["stopping", "ending"])
def test_a_daemon_that_dies_in_a_stop_finishes_it(engined: Engined, step: str) -> None:
    client = engined.start(DIE_AT=step)
    pid = pid_of(client.launch(engined.params()))
    with pytest.raises(DaemonUnreachable):
        stop(client)
    assert engined.gone() == -signal.SIGKILL
    client = engined.start()
    assert client.wait("x", "exited", timeout_ms=10_000).state == "exited"
    wait_for(lambda: not is_running(pid))
    assert engined.records() == []
    wait_for(lambda: "stopped" in engined.story())
    assert not {"task-crashed", "launch-failed", "exited"} & {*engined.story()}


def test_a_subscriber_hears_that_the_daemon_leaves(engined: Engined) -> None:
    client = engined.start()
    client.launch(engined.params())
    subscription = client.subscribe(SubscribeParams()).subscription
    engined.end(signal.SIGTERM)
    heard: list[bytes] = []
    with pytest.raises(DaemonUnreachable):
        heard.extend(client.events(subscription))
    assert any(b'"supervisor-stopping"' in it and b'"detached":1' in it for it in heard)


def test_numbers_of_events_go_on_over_lives(engined: Engined) -> None:
    for number in ENDS:
        client = engined.start()
        client.launch(engined.params())
        stop(client)
        engined.end(number)
    engined.start()
    events = engined.events()
    assert [it["seq"] for it in events] == list(range(events[0]["seq"], events[-1]["seq"] + 1))
    assert len({it["epoch"] for it in events}) == 1
    kinds = [it["kind"] for it in events]
    assert kinds.count("supervisor-started") == 4
    assert kinds.count("supervisor-stopping") == 2


def wait_for(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.02)
