"""Every record that a daemon can leave, with every truth about its engine, and every command.

What comes of it follows from the contract: a stop wins; a stop or a restart that was begun is
finished; an engine that nobody wants to end goes on; one that is dead is told about, once.
"""

from collections.abc import Iterator
from itertools import product
from typing import Literal, get_args

import msgspec
import pytest
from msgspec.structs import replace

from supervisor.contracts.failure import (
    Cancelled,
    ExitedEarly,
    LaunchFailure,
    SpawnFailed,
    UnhealthyTimeout,
)
from supervisor.contracts.instance import InstanceRecord, Intent
from supervisor.launchers.base import Exit
from tests.chaos.journal import misreported
from tests.model.machine import Supervised

Truth = Literal["alive", "leader gone", "gone"]
Order = Literal["stop", "restart"] | None
Outcome = Literal["up", "new", "ended"]

A_WHILE_S = 200.0
"""Longer than any grace and any pause."""
LATE = UnhealthyTimeout(waited_ms=5, log_tail="")
ORDERS: tuple[Order, ...] = (None, "stop", "restart")
TRUTHS: tuple[Truth, ...] = ("alive", "leader gone", "gone")
CAUSES: tuple[LaunchFailure | None, ...] = (None, Cancelled(), LATE)


@pytest.fixture
def machine() -> Iterator[Supervised]:
    machine = Supervised()
    yield machine
    machine.teardown()


def left(machine: Supervised, *, ready: bool, truth: Truth, **supervision: object) -> str:
    """An engine and its record, with these facts in it. No daemon looks after them."""
    machine.begin()
    machine.launch("a", "never", None, "steady" if ready else "slow", True, True, False)
    machine.let_time_pass(1.0)
    machine.loop.run_until_complete(machine._end())
    [engine] = machine.launcher.engines.values()
    if truth != "alive":
        engine.die(Exit(9, None), whole=truth == "gone")
    path = machine.folder / "instances" / "a.json"
    record = msgspec.json.decode(path.read_bytes(), type=InstanceRecord)
    assert record.supervision
    assert (record.supervision.ready_at is not None) == ready
    ref = None if supervision.get("intent") == "launching" else record.ref
    changed = replace(record, ref=ref, supervision=replace(record.supervision, **supervision))
    path.write_bytes(msgspec.json.encode(changed))
    return record.nonce


def obey(machine: Supervised, order: Order) -> bool:
    """Whether there was still something to order about."""
    machine.begin()
    machine.let_time_pass(0.5)
    living = bool(machine.supervisor.list())
    if order == "stop":
        machine.stop("a", None)
    elif order == "restart":
        machine.restart("a")
    machine.let_time_pass(A_WHILE_S)
    return living


def outcome(machine: Supervised, nonce: str) -> Outcome:
    views = machine.supervisor.list()
    if not views:
        return "ended"
    [view] = views
    assert view.state == "ready"
    engines = [*machine.launcher.engines.values()]
    return "up" if len(engines) == 1 and view.record.nonce == nonce else "new"


def told(machine: Supervised, nonce: str) -> list[str]:
    """The words of an end, of the attempt that was left."""
    kinds = []
    for line in machine.told:
        if line.nonce == nonce:
            if line.kind == "restarting":
                break
            kinds.append(line.kind)
    return [it for it in kinds if it in ("launch-failed", "exited", "reaped", "stopped")]


def hold(machine: Supervised) -> None:
    """What always holds."""
    machine.no_device_is_under_two_living_engines()
    machine.no_engine_lives_without_its_record()
    machine.a_device_is_held_or_free()
    machine.states_tell_the_truth()
    assert misreported(machine.told, {it.record.nonce for it in machine.supervisor.list()}) == []


@pytest.mark.parametrize(("ready", "truth", "order"), [*product((True, False), TRUTHS, ORDERS)])
def test_running(machine: Supervised, ready: bool, truth: Truth, order: Order) -> None:
    nonce = left(machine, ready=ready, truth=truth)
    obey(machine, order)
    hold(machine)
    if order == "restart":
        assert outcome(machine, nonce) == "new"
    elif order == "stop" or truth != "alive":
        assert outcome(machine, nonce) == "ended"
    else:
        assert outcome(machine, nonce) == "up"
        assert told(machine, nonce) == []
        return
    [word] = told(machine, nonce)
    if not ready:
        assert word == "launch-failed"
    elif truth == "alive":
        assert word == "stopped"
    else:
        assert word == ("exited" if truth == "leader gone" else "reaped")


@pytest.mark.parametrize(
    ("ready", "truth", "cause", "again", "order"),
    [*product((True, False), TRUTHS, CAUSES, (True, False), ORDERS)],
)
def test_stopping(
    machine: Supervised,
    ready: bool,
    truth: Truth,
    cause: LaunchFailure | None,
    again: bool,
    order: Order,
) -> None:
    nonce = left(
        machine,
        ready=ready,
        truth=truth,
        intent="stopping",
        stopping_for=cause,
        restart_after_stop=again,
    )
    living = obey(machine, order)
    hold(machine)
    asked = cause is None or isinstance(cause, Cancelled)
    if order == "restart" and not living:
        assert outcome(machine, nonce) == "new"
    elif order == "stop":
        assert outcome(machine, nonce) == "ended" or not living
    elif asked:
        assert outcome(machine, nonce) == ("new" if again else "ended")
    else:
        assert outcome(machine, nonce) == ("new" if order == "restart" else "ended")
    assert told(machine, nonce) == ["stopped" if ready else "launch-failed"]


@pytest.mark.parametrize("order", ORDERS)
def test_launching(machine: Supervised, order: Order) -> None:
    nonce = left(machine, ready=False, truth="gone", intent="launching")
    obey(machine, order)
    hold(machine)
    assert outcome(machine, nonce) == ("new" if order == "restart" else "ended")
    assert told(machine, nonce) == ["launch-failed"]


@pytest.mark.parametrize("order", ORDERS)
def test_waiting(machine: Supervised, order: Order) -> None:
    machine.begin()
    machine.launch("a", "on-failure", None, "dies loading", False, False, False)
    machine.let_time_pass(0.5)
    [view] = machine.supervisor.list()
    assert view.intent == "waiting"
    machine.loop.run_until_complete(machine._end())
    machine.launcher.natures["a"] = "steady", False, False
    obey(machine, order)
    hold(machine)
    assert outcome(machine, view.record.nonce) == ("ended" if order == "stop" else "new")


def test_intents_are_all_here() -> None:
    assert {*get_args(Intent)} == {"running", "stopping", "launching", "waiting"}


def test_failures_are_told_with_their_first_cause(machine: Supervised) -> None:
    """The failure that a daemon wrote down is the one that the next one tells."""
    left(machine, ready=False, truth="gone", intent="stopping", stopping_for=LATE)
    obey(machine, None)
    assert machine.supervisor.get("a").failure == LATE


@pytest.mark.parametrize(
    ("intent", "failure"), [("running", ExitedEarly), ("launching", SpawnFailed)]
)
def test_failures_say_what_is_known(
    machine: Supervised, intent: Intent, failure: type[LaunchFailure]
) -> None:
    left(machine, ready=False, truth="gone", intent=intent)
    obey(machine, None)
    assert isinstance(machine.supervisor.get("a").failure, failure)
