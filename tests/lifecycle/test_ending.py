"""Why an attempt comes down, and how, by the facts alone."""

import pytest
from msgspec.structs import replace

from supervisor.contracts.failure import (
    Cancelled,
    ExitedEarly,
    LaunchFailure,
    SpawnFailed,
    UnhealthyTimeout,
)
from supervisor.contracts.instance import Intent, LaunchParams, Supervision
from supervisor.lifecycle.ending import MANNERS, Cause, Command, Verb, cause_of, to_resume

LATE = UnhealthyTimeout(waited_ms=5, log_tail="")
SPAWN = SpawnFailed(detail="no")
EXIT = ExitedEarly(exit_code=1, signal=None, log_tail="")

FACTS = Supervision(
    schema_version=1,
    boot_id="boot",
    supervisor_id="5e1f",
    launch=LaunchParams(name="x"),
    intent="running",
    attempt=1,
    exclusive=True,
    bind_host="127.0.0.1",
)


def facts(
    *,
    ready: bool,
    intent: Intent = "running",
    stopping_for: LaunchFailure | None = None,
    again: bool = False,
    stop_asked: bool = False,
) -> Supervision:
    return replace(
        FACTS,
        ready_at="2026-01-01T00:00:00Z" if ready else None,
        intent=intent,
        stopping_for=stopping_for,
        restart_after_stop=again,
        stop_asked=stop_asked,
    )


STOP, RESTART = Command("stop", 7), Command("restart", None)


@pytest.mark.parametrize("intent", ["running", "stopping"])
@pytest.mark.parametrize("stopping_for", [None, LATE])
@pytest.mark.parametrize("command", [None, STOP, RESTART])
def test_an_engine_that_ended_by_itself_ended_by_itself(
    intent: Intent, stopping_for: LaunchFailure | None, command: Command | None
) -> None:
    """Its exit was told; what somebody asks afterwards is about what follows."""
    supervision = facts(ready=True, intent=intent, stopping_for=stopping_for)
    cause = cause_of(supervision, command=command, last_words=EXIT, failure=None)
    assert cause == Cause("exit", EXIT)


@pytest.mark.parametrize(
    ("command", "stopping_for", "cause"),
    [
        (None, None, None),
        (None, LATE, Cause("unhealthy", LATE, again=True)),
        (STOP, None, Cause("stop", None, 7)),
        (STOP, LATE, Cause("stop", None, 7)),
        (Command("cancel", None), None, Cause("cancel")),
        (RESTART, None, Cause("restart", again=True)),
        (RESTART, LATE, Cause("restart", again=True)),
    ],
)
def test_a_ready_engine(
    command: Command | None, stopping_for: LaunchFailure | None, cause: Cause | None
) -> None:
    supervision = facts(ready=True, stopping_for=stopping_for)
    assert cause_of(supervision, command=command, last_words=None, failure=None) == cause


@pytest.mark.parametrize(
    ("intent", "stopping_for", "command", "first", "cause"),
    [
        ("running", None, None, None, None),
        ("running", None, STOP, None, Cause("failure", Cancelled(), 7)),
        ("running", None, RESTART, None, Cause("failure", Cancelled(), again=True)),
        ("running", None, None, SPAWN, Cause("failure", SPAWN)),
        ("running", None, STOP, SPAWN, Cause("failure", SPAWN, 7)),
        ("stopping", None, None, None, Cause("failure", Cancelled())),
        ("stopping", LATE, None, None, Cause("failure", LATE)),
        ("stopping", LATE, STOP, None, Cause("failure", LATE, 7)),
        ("stopping", LATE, None, SPAWN, Cause("failure", SPAWN)),
        ("stopping", Cancelled(), RESTART, None, Cause("failure", Cancelled(), again=True)),
    ],
)
def test_an_attempt_that_never_got_ready(
    intent: Intent,
    stopping_for: LaunchFailure | None,
    command: Command | None,
    first: LaunchFailure | None,
    cause: Cause | None,
) -> None:
    """It has one cause, and that is the first one."""
    supervision = facts(ready=False, intent=intent, stopping_for=stopping_for)
    assert cause_of(supervision, command=command, last_words=None, failure=first) == cause


@pytest.mark.parametrize(
    ("supervision", "verb"),
    [
        (facts(ready=True), None),
        (facts(ready=True, intent="waiting", again=True), None),
        (facts(ready=True, intent="stopping"), "stop"),
        (facts(ready=True, intent="stopping", again=True), "restart"),
        (facts(ready=False, intent="stopping", stopping_for=Cancelled()), "stop"),
        (facts(ready=False, intent="stopping", stopping_for=Cancelled(), again=True), "restart"),
        (facts(ready=True, intent="stopping", stopping_for=LATE, again=True), None),
        (facts(ready=True, intent="stopping", stopping_for=LATE, stop_asked=True), "stop"),
        (facts(ready=True, intent="stopping", again=True, stop_asked=True), "stop"),
    ],
)
def test_what_an_earlier_daemon_was_asked(supervision: Supervision, verb: Verb | None) -> None:
    assert to_resume(supervision) == verb


def test_only_what_never_got_ready_or_is_dead_may_never_be_given_up() -> None:
    """A living engine that may not be touched serves on; nothing else has a life to go on with."""
    assert {reason for reason, manner in MANNERS.items() if manner.insists} == {"exit", "failure"}


def test_an_unwinding_and_an_exit_tell_of_no_stop() -> None:
    """An unwinding is no stop, and ``exited`` is the word for an exit."""
    assert {reason for reason, manner in MANNERS.items() if not manner.told} == {"exit", "failure"}
