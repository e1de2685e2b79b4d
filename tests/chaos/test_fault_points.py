"""The daemon dies at every named step of every act, one step a life; the next one sets it right.

Each act is done over and over on one state directory: by a daemon that dies at its first step, then
by one that dies at the second, until one comes through. In between a daemon that does not die takes
up what was left, and has to make sense of it.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.client import Client, ClientError
from supervisor.contracts.instance import InstanceView
from supervisor.contracts.rpc import DrainParams, StopParams
from tests.chaos import journal
from tests.chaos.nursery import Nursery
from tests.chaos.world import SOON, World, world

Deed = Callable[[World, Client], object]

TREE = "session,detached+deaf"
GRACE_MS = 100
BEFORE_THE_RENAME = frozenset({"store:create", "store:write", "store:fsync"})
"""A death at one of these is a death at the rename, but for what it leaves of a temporary file. So
all of them count in one act, and in the others the rename stands for them."""


def nothing(_: World, __: Client) -> None:
    pass


def launch(at: World, client: Client) -> None:
    client.launch(at.params("x", binary=at.binary(children=TREE), device_count=1))


def launch_to_load(at: World, client: Client) -> None:
    """It takes its time, so that it is under way when the act comes."""
    slow = at.binary(load=0.35, children="session")
    client.launch(at.params("x", binary=slow, device_count=1, wait=False))
    until(client, "starting")


def launch_in_vain(at: World, client: Client) -> None:
    bad = at.binary(exit_after=0.01, exit_code=3, children="session")
    client.launch(at.params("x", binary=bad, device_count=1))


def launch_again_and_again(at: World, client: Client) -> None:
    bad = at.binary(exit_after=0.01, exit_code=3)
    client.launch(at.params("x", binary=bad, device_count=1, restart="on-failure"))


def launch_to_return(at: World, client: Client) -> None:
    client.launch(at.params("x", device_count=1, restart="on-failure"))


def launch_to_wait(at: World, client: Client) -> None:
    """Into a pause that does not end."""
    bad = at.binary(exit_after=0.01, exit_code=3)
    client.launch(at.params("x", binary=bad, device_count=1, restart="always", wait=False))
    until(client, "reserving", lambda view: view.intent == "waiting")


def launch_several(at: World, client: Client) -> None:
    """Beside one that is ready: one that loads, and one that is dead when the daemon comes."""
    client.launch(at.params("dead", device_count=1))
    client.launch(at.params("y", device_count=1))
    launch_to_load(at, client)
    for main in at.book.mains():
        if main.name == "dead" and main.lives:
            at.kill_engine(main)


def stop(at: World, client: Client) -> None:
    client.stop(StopParams(name="x", grace_ms=GRACE_MS))


def restart(at: World, client: Client) -> None:
    client.restart(StopParams(name="x", grace_ms=GRACE_MS))


def end_of_the_engine(at: World, client: Client) -> None:
    """It is killed, and comes back."""
    main = [it for it in at.book.mains() if it.lives][-1]
    at.kill_engine(main)
    until(client, "ready", lambda view: getattr(view.record.ref, "pid", 0) != main.pid)


def readiness(at: World, client: Client) -> None:
    until(client, "ready")


def until(
    client: Client, state: str, holds: Callable[[InstanceView], bool] = lambda view: True
) -> None:
    """Wait for ``x`` to be in a state; ``gone`` is one too."""
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        found = {view.record.name: view for view in client.list().instances}.get("x")
        if (found is None and state == "gone") or (found and found.state == state and holds(found)):
            return
        time.sleep(0.005)
    raise AssertionError(f"x does not come to be {state}: {found}")


def die_in(at: World, deed: Deed, step: int, trace: Path, passing: frozenset[str]) -> bool:
    """Do the deed under a daemon that dies at this step; whether there was such a step."""
    at.begin(die_at=step, trace=trace, passing=passing)
    if at.serving():
        doing = threading.Thread(target=_attempt, args=(at, deed))
        doing.start()
        doing.join(SOON)
        assert not doing.is_alive()
        if len(trace.read_text().split()) < step:
            at.kill()
            return False
    assert at.gone() == -9, at.stderr()
    return True


def _attempt(at: World, deed: Deed) -> None:
    with suppress(ClientError), at.client() as client:
        deed(at, client)


def verdict(at: World) -> list[str]:
    """Everything that must hold once the next daemon has been there for a while."""
    wrong = at.settle(5.0)
    wrong += [f"double lease: {it}" for it in at.book.read() if it.what == "clash"]
    told = journal.lines(at.log_dir / "events.jsonl")
    wrong += journal.gaps(told)
    wrong += journal.misreported(told, (it.nonce for it in at.records().values()))
    return wrong


@dataclass(frozen=True)
class Act:
    """What is done while the daemon dies, and what was done before it under one that lives."""

    deed: Deed
    before: Deed = nothing
    outcomes: tuple[tuple[str, str], ...] = ()
    """Pairs of a step and a state: once the step was reached, the state comes. The first one
    counts; an empty step is always reached."""
    passing: frozenset[str] = BEFORE_THE_RENAME

    def outcome(self, steps: list[str]) -> str | None:
        if steps and steps[-1] == "store:fsync-dir":
            return None  # what the step after it would show has happened already
        reached = [state for step, state in self.outcomes if step in {"", *steps}]
        return reached[0] if reached else None


RESTARTED = (("spawned", "ready"), ("retrying", "gone"), ("", "ready"))
"""The launch that is its second half is undone like any other where the daemon dies in it."""

ACTS = {
    "a launch": Act(launch, passing=frozenset(), outcomes=(("spawned", "ready"),)),
    "a launch that fails": Act(launch_in_vain, outcomes=(("", "gone"),)),
    "a launch that fails until it is given up": Act(
        launch_again_and_again, outcomes=(("", "gone"),)
    ),
    "a stop": Act(stop, launch, outcomes=(("stopping", "gone"),)),
    "a stop during a launch": Act(
        stop, launch_to_load, outcomes=(("unwinding", "gone"), ("", "ready"))
    ),
    "a stop during a pause": Act(stop, launch_to_wait, outcomes=(("stopping", "gone"),)),
    "a restart": Act(restart, launch, outcomes=RESTARTED),
    "a restart during a launch": Act(restart, launch_to_load, outcomes=RESTARTED),
    "the end of an engine that comes back": Act(
        end_of_the_engine, launch_to_return, outcomes=(("", "ready"),)
    ),
    "an adoption": Act(readiness, launch_several, outcomes=(("", "ready"),)),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_death_at_any_step(tmp_path: Path, nursery: Nursery, name: str) -> None:
    act = ACTS[name]
    settings: dict[str, float] = {}
    if act.before is launch_to_wait:
        settings = {"breaker-ms": 60_000, "breaker-failures": 1}
    if act.deed is launch_again_and_again:
        settings = {"max-attempts": 2}
    with world(tmp_path, nursery, cards=3, **settings) as at:
        at.start()
        step, died = 0, True
        while died:
            step += 1
            with at.client() as client:
                act.before(at, client)
            at.kill()
            trace = tmp_path / f"trace-{step}"
            died = die_in(at, act.deed, step, trace, act.passing)
            at.start()
            steps = trace.read_text().split()
            with at.client() as client:
                if outcome := act.outcome(steps):
                    until(client, outcome)
                assert verdict(at) == [], f"died at step {step}: {steps}"
                client.drain(DrainParams(grace_ms=GRACE_MS))
                if act.before is nothing:  # else the next round shows that a launch works again
                    launch_to_return(at, client)
                    stop(at, client)
        assert at.settle() == []
        assert step > 5, "there are more steps than that"
