"""CLK-1: a daemon that is frozen past a deadline, as all of a machine is in a suspend."""

import os
import signal
import time

import pytest

from supervisor.client import RpcError
from supervisor.contracts.failure import UnhealthyTimeout
from tests.daemon.engined import Engined, stop
from tests.daemon.test_life import wait_for

DEADLINE_MS = 1_500
FROZEN_S = 3.0


def freeze(engined: Engined) -> None:
    os.kill(engined.pid, signal.SIGSTOP)
    time.sleep(FROZEN_S)
    os.kill(engined.pid, signal.SIGCONT)


def test_what_became_ready_meanwhile_is_ready(engined: Engined) -> None:
    """One success wins over a deadline that passed while nobody asked."""
    client = engined.start()
    binary = engined.stub(load=1.0)
    client.launch(engined.params(binary=binary, ready_deadline_ms=DEADLINE_MS, wait=False))
    wait_for(lambda: "spawned" in engined.story())
    assert client.get("x").state == "starting"
    freeze(engined)
    assert client.wait("x", timeout_ms=10_000).state == "ready"
    wait_for(lambda: "ready" in engined.story())
    assert "launch-failed" not in engined.story()
    [ready] = [it for it in engined.events() if it["kind"] == "ready"]
    assert ready["waitedMs"] > FROZEN_S * 1_000  # it says how long it really was
    stop(client)


def test_what_did_not_has_failed_and_says_how_long_it_was(engined: Engined) -> None:
    client = engined.start()
    binary = engined.stub(health="503")
    client.launch(engined.params(binary=binary, ready_deadline_ms=DEADLINE_MS, wait=False))
    wait_for(lambda: "spawned" in engined.story())
    freeze(engined)
    with pytest.raises(RpcError) as caught:
        client.wait("x", timeout_ms=10_000)
    failure = caught.value.failure
    assert isinstance(failure, UnhealthyTimeout)
    assert FROZEN_S * 1_000 < failure.waited_ms < FROZEN_S * 1_000 + 5_000
    assert engined.records() == []
