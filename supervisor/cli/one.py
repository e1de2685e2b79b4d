"""``info``: everything that the daemon knows of one instance, on one screen."""

import argparse
from collections.abc import Iterator

from supervisor.cli.context import Add, Context
from supervisor.cli.showing import reason_of
from supervisor.cli.text import age, printable, say, until
from supervisor.contracts.failure import ExitedEarly, LaunchFailure, SpawnFailed, UnhealthyTimeout
from supervisor.contracts.instance import DockerHandle, PinnedHandle, ProcessHandle
from supervisor.contracts.rpc import InstanceDetail, NameParams
from supervisor.failures import sentence


def add_commands(add: Add) -> None:
    info = add("info", "Show all that is known of one instance.", run=show_info)
    info.add_argument("name", metavar="NAME")


def show_info(context: Context, args: argparse.Namespace) -> int:
    reply = context.client.raw("instance.get", NameParams(name=args.name))
    return context.show(reply, InstanceDetail, _show)


def _show(view: InstanceDetail) -> None:
    for name, value in _rows(view):
        say(f"{name:<9} {printable(value)}")


def _rows(view: InstanceDetail) -> Iterator[tuple[str, str]]:
    record = view.record
    yield "name", record.name
    yield "engine", f"{record.engine}, as a {record.runtime}"
    yield "state", " ".join(filter(None, (view.state, _in_brackets(reason_of(view)))))
    if view.health.last:
        misses = f", {view.health.misses} misses in a row" if view.health.misses else ""
        yield "health", f"{view.health.last}{misses}"
    if record.port:
        yield "port", str(record.port)
    yield "devices", ", ".join(record.devices) or "none"
    match record.ref:
        case ProcessHandle(pid=pid):
            yield "pid", str(pid)
        case DockerHandle(container=container):
            yield "container", container
        case PinnedHandle(holder=holder):
            yield "holder", holder
    yield "started", f"{record.started_at}, {age(record.started_at)} ago"
    yield "attempt", str(view.attempt)
    if view.retry_at:
        yield "next", until(view.retry_at)
    if view.log_path:
        yield "log", view.log_path
    yield "nonce", record.nonce
    if view.failure:
        yield from _failure("failure", view.failure)
    if view.first_failure and view.first_failure != view.failure:
        yield from _failure("at first", view.first_failure)


def _failure(label: str, failure: LaunchFailure) -> Iterator[tuple[str, str]]:
    yield label, sentence(failure)
    if isinstance(failure, SpawnFailed | ExitedEarly | UnhealthyTimeout) and failure.diagnosis:
        yield "evidence", failure.diagnosis.evidence


def _in_brackets(text: str) -> str:
    return f"({text})" if text else ""
