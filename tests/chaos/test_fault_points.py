"""The daemon dies at every named step of every act, one step a life; the next daemon sets it right.

Each act is done over and over on one state directory: by a daemon that dies at the first step of it,
then by one that dies at the second, until one comes through. In between a daemon that does not die
takes up what was left, and has to make sense of it.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.client import ClientError
from supervisor.contracts.instance import InstanceView
from supervisor.contracts.rpc import StopParams
from tests.chaos import journal
from tests.chaos.world import SOON, World, world

Act = Callable[[World], None]

TREE = "session,detached+deaf"
GRACE_MS = 100


def nothing(_: World) -> None:
    """The start of the daemon is the act."""


def launch(at: World) -> None:
    with at.client() as client:
        client.launch(at.params("x", binary=at.binary(children=TREE), device_count=1))


def launch_to_load(at: World) -> None:
    """It takes its time, so that it is under way when the next act comes."""
    with at.client() as client:
        slow = at.binary(load=60, children="session")
        client.launch(at.params("x", binary=slow, device_count=1, wait=False))
    until(at, lambda view: view is not None and view.state == "starting")


def launch_in_vain(at: World) -> None:
    with at.client() as client:
        bad = at.binary(exit_after=0.01, exit_code=3, children="session")
        client.launch(at.params("x", binary=bad, device_count=1))


def launch_again_and_again(at: World) -> None:
    with at.client() as client:
        bad = at.binary(exit_after=0.01, exit_code=3)
        client.launch(at.params("x", binary=bad, device_count=1, restart="on-failure"))


def launch_to_return(at: World) -> None:
    with at.client() as client:
        client.launch(at.params("x", device_count=1, restart="on-failure"))


def launch_to_wait(at: World) -> None:
    """Into the long pause of the breaker."""
    with at.client() as client:
        bad = at.binary(exit_after=0.01, exit_code=3)
        params = at.params("x", binary=bad, device_count=1, restart="always", wait=False)
        client.launch(params)
    until(at, lambda view: view is not None and view.intent == "waiting")


def stop(at: World) -> None:
    with at.client() as client:
        client.stop(StopParams(name="x", grace_ms=GRACE_MS))


def restart(at: World) -> None:
    with at.client() as client:
        client.restart(StopParams(name="x", grace_ms=GRACE_MS))


def end_of_the_engine(at: World) -> None:
    """It is killed, and comes back."""
    until(at, lambda view: view is not None and view.state == "ready")
    main = [it for it in at.book.mains() if it.lives][-1]
    at.book.kill_living()
    until(at, lambda view: view is not None and view.state == "ready", unlike=main.pid)


def until(at: World, holds: Callable[[InstanceView | None], bool], unlike: int = 0) -> None:
    deadline = time.monotonic() + SOON
    with at.client() as client:
        while time.monotonic() < deadline:
            found = {view.record.name: view for view in client.list().instances}.get("x")
            if holds(found) and getattr(found and found.record.ref, "pid", 1) != unlike:
                return
            time.sleep(0.005)
    raise AssertionError("it did not come to that")


def die_in(at: World, act: Act, step: int, trace: Path) -> bool:
    """Do the act under a daemon that dies at this step; whether there was such a step."""
    at.begin(die_at=step, trace=trace)
    if at.serving():
        deed = threading.Thread(target=_attempt, args=(act, at))
        deed.start()
        deed.join(SOON)
        assert not deed.is_alive()
        assert at.daemon
        if not at.daemon.is_dead():
            at.kill()
            return False
    assert at.gone() == -9, at.stderr()
    return True


def _attempt(act: Act, at: World) -> None:
    with suppress(ClientError):
        act(at)


def verdict(at: World) -> list[str]:
    """Everything that must hold once the next daemon has been there for a while."""
    wrong = at.settle(5.0)
    wrong += [f"double lease: {it}" for it in at.book.read() if it.what == "clash"]
    told = journal.lines(at.log_dir / "events.jsonl")
    wrong += journal.gaps(told)
    wrong += journal.misreported(told, (it.nonce for it in at.records().values()))
    return wrong


ACTS: dict[str, tuple[Act, Act]] = {
    "a launch": (nothing, launch),
    "a launch that fails": (nothing, launch_in_vain),
    "a launch that fails until it is given up": (nothing, launch_again_and_again),
    "a stop": (launch, stop),
    "a stop during a launch": (launch_to_load, stop),
    "a stop during a pause": (launch_to_wait, stop),
    "a restart": (launch, restart),
    "a restart during a launch": (launch_to_load, restart),
    "the end of an engine that comes back": (launch_to_return, end_of_the_engine),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_death_at_any_step(tmp_path: Path, act: str) -> None:
    before, deed = ACTS[act]
    slow = {"breaker-ms": 60_000, "breaker-failures": 1} if before is launch_to_wait else {}
    with world(tmp_path, cards=1, **{"max-attempts": 2} | slow) as at:
        at.start()
        step, died = 0, True
        while died:
            step += 1
            _attempt(before, at)
            at.kill()
            trace = tmp_path / f"trace-{step}"
            died = die_in(at, deed, step, trace)
            at.start()
            steps = trace.read_text().split() if trace.exists() else []
            assert verdict(at) == [], f"died at step {step}: {steps}"
            _attempt(stop, at)
            launch(at)
            _attempt(stop, at)
            assert at.settle() == []
        assert step > 5, "there are more steps than that"
