"""``launch`` and ``plan``: the same flags, once done and once only shown."""

import argparse
import math
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET

from supervisor.cli.context import Add, Context
from supervisor.cli.exits import INTERRUPTED, UsageError
from supervisor.cli.text import byte_count, duration_ms, milliseconds, printable, say, until, warn
from supervisor.client import DaemonUnreachable, OnNotice
from supervisor.contracts.engine import ENGINE_IDS, ServingOptions
from supervisor.contracts.instance import InstanceView, LaunchParams
from supervisor.contracts.model import Fit
from supervisor.contracts.rpc import EventNotice, Notification, PlanReply, SubscribeParams


def _fraction(text: str) -> float:
    """JSON has no word for nan or infinity: they would arrive as nothing at all."""
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is no fraction; give one above 0, at most 1")


_KNOBS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("tensor_parallel", int),
    ("pipeline_parallel", int),
    ("max_context_length", int),
    ("memory_fraction", _fraction),
    ("max_concurrent_requests", int),
    ("kv_cache_dtype", str),
    ("dtype", str),
    ("quantization", str),
    ("trust_remote_code", bool),
    ("tool_call_parser", str),
    ("reasoning_parser", str),
)
"""The members of ``ServingOptions``, spelled out: to read them off the type costs start time."""


_OUTCOMES = ("launch-failed", "restarting", "warning")
"""The events that are told wherever stderr goes."""


def add_commands(add: Add) -> None:
    launch = add("launch", "Launch an engine and wait until it is ready.", run=launch_engine)
    _add_flags(launch)
    launch.add_argument(
        "--no-wait",
        dest="wait",
        action="store_const",
        const=False,
        help="return once name, devices and port are reserved",
    )
    _add_flags(add("plan", "Show what a launch would run; nothing is done.", run=plan_launch))


def launch_engine(context: Context, args: argparse.Namespace) -> int:
    params = launch_params(args)
    try:
        on_notice = None if params.wait is False else progress(context, params.name)
        reply = _launched(context, params, on_notice)
    except KeyboardInterrupt:
        warn(printable(f"the launch of {params.name} goes on; {_followed(params.name)}"))
        return INTERRUPTED
    return context.show(reply, InstanceView, show_state)


def _launched(context: Context, params: LaunchParams, on_notice: OnNotice | None) -> bytes:
    try:
        return context.client.raw("instance.launch", params, timeout=None, on_notice=on_notice)
    except DaemonUnreachable as error:
        if not error.lost:
            raise
        raise DaemonUnreachable(
            f"{error}; if the launch of {params.name} had begun, it goes on, also when the daemon "
            f"is started again: then {_followed(params.name)}"
        ) from None


def _followed(name: str) -> str:
    return f"`enginectl wait {name}` waits for it, `enginectl cancel {name}` ends it"


def plan_launch(context: Context, args: argparse.Namespace) -> int:
    reply = context.client.raw("engine.plan", launch_params(args))
    return context.show(reply, PlanReply, _show_plan)


def progress(context: Context, name: str) -> "Progress | None":
    """Have the daemon tell how the attempts of this instance go, from now on. Under ``--json``
    stderr is for the one error; a program subscribes to events.
    """
    if context.json:
        return None
    steps = sys.stderr.isatty()
    kinds = UNSET if steps else _OUTCOMES
    context.client.subscribe(SubscribeParams(kinds=kinds, instances=(name,)))
    return Progress(steps=steps)


def show_state(view: InstanceView) -> None:
    """``NAME STATE PORT DEVICES``, which scripts read."""
    record = view.record
    say(printable(f"{record.name} {view.state} {record.port} {','.join(record.devices)}"))


class Progress:
    """Tells on stderr why an attempt failed and when the next one is, each on one line.

    Warnings too, such as that it will hardly fit; with ``steps`` whatever else happens. Of the last
    attempt the reply tells.
    """

    def __init__(self, *, steps: bool) -> None:
        self._steps = steps
        self._failed: dict[str, Any] | None = None

    def __call__(self, notice: Notification) -> None:
        if notice.method != "event":
            return
        raw = msgspec.json.decode(notice.params, type=EventNotice).event
        event = msgspec.json.decode(raw)
        if event.get("failure", {}).get("kind") == "already-running":
            return  # another launch of this name was refused, which is none of its attempts
        if text := self._text(event):
            warn(printable(f"{event.get('instance')}: {text}"))

    def _text(self, event: dict[str, Any]) -> str:
        match event:
            case {"kind": "launch-failed"}:
                self._failed = event
                return ""
            case {"kind": "restarting", "attempt": attempt, "retryAt": moment}:
                failed, self._failed = self._failed, None
                following = f"attempt {attempt} {until(moment)}"
                if failed is None or failed["failure"]["kind"] == "cancelled":
                    return f"{following} ({event.get('reason')})"
                return f"attempt {failed['attempt']} failed: {_why(failed['failure'])}; {following}"
            case {"kind": "warning", "detail": detail}:
                return f"warning: {detail}"
            case _:
                return _step(event) if self._steps else ""


def launch_params(args: argparse.Namespace) -> LaunchParams:
    """What the flags say; those that were not given stay unset, and the daemon decides."""

    def given(name: str) -> Any:
        value = getattr(args, name, None)
        return UNSET if value is None else value

    options = {name: given(name) for name, _ in _KNOBS}
    some = any(value is not UNSET for value in options.values())
    path = given("model_path")
    if args.verbatim and not args.rest:
        raise UsageError("--command needs the command to run, behind `--`")
    rest = args.rest or UNSET
    return LaunchParams(
        name=args.name,
        engine=given("engine"),
        model_path=os.path.abspath(path) if path else UNSET,
        recipe=given("recipe"),
        runtime=given("runtime"),
        device_count=given("device_count"),
        devices=given("devices"),
        exclusive=given("exclusive"),
        memory_bytes=given("memory_bytes"),
        port=given("port"),
        served_model_name=given("served_model_name"),
        options=ServingOptions(**options) if some else UNSET,
        extra_args=UNSET if args.verbatim else rest,
        env=dict(args.env) if args.env else UNSET,
        docker_image=given("docker_image"),
        binary=given("binary"),
        command=rest if args.verbatim else UNSET,
        restart=given("restart"),
        ready_deadline_ms=given("ready_deadline_ms"),
        deep_check_ms=given("deep_check_ms"),
        stall_ms=given("stall_ms"),
        ready_cap_ms=given("ready_cap_ms"),
        wait=given("wait"),
    )


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(takes_rest=True)
    parser.usage = "%(prog)s NAME --engine E --model-path P [...] [-- EXTRA ARGS]"
    parser.epilog = "What follows `--` goes to the engine as it stands."
    flag = parser.add_argument
    flag("name", metavar="NAME")
    flag("--engine", choices=ENGINE_IDS)
    flag("--model-path", metavar="PATH", help="a model directory, or a .gguf file")
    flag("--recipe", metavar="NAME", help="a named set of these flags in the daemon's config")
    flag("--runtime", choices=("process", "docker"))
    flag("--devices", type=_listed, metavar="ID,ID", help="these devices, and no others")
    flag("--device-count", type=int, metavar="N")
    flag(
        "--exclusive",
        action=argparse.BooleanOptionalAction,
        help="share the devices with nobody (the default on discrete ones)",
    )
    flag("--memory-bytes", type=byte_count, metavar="SIZE", help="a claim on each device")
    flag("--port", type=int, metavar="N", help="exactly this port")
    flag("--served-model-name", metavar="NAME")
    flag("--binary", metavar="PATH", help="the engine's program")
    flag("--docker-image", metavar="IMAGE")
    flag("--env", type=_pair, action="append", metavar="K=V", help="may be repeated")
    flag(
        "--restart",
        choices=("never", "on-failure", "always"),
        help="on-failure: start it again whenever it ends without being told to, whatever its exit "
        "code; always: also after a reboot of the machine",
    )
    deadline = parser.add_mutually_exclusive_group()
    deadline.add_argument("--ready-deadline-ms", type=milliseconds, metavar="MS")
    deadline.add_argument(
        "--ready-timeout",
        dest="ready_deadline_ms",
        type=duration_ms,
        metavar="90s",
        help="give up when it is not ready in time",
    )
    flag(
        "--stall-ms",
        type=milliseconds,
        metavar="MS",
        help="give it more time while its log shows progress: so long after the last of it",
    )
    flag("--ready-cap-ms", type=milliseconds, metavar="MS", help="but no longer than this in all")
    flag(
        "--deep-check-ms",
        type=milliseconds,
        metavar="MS",
        help="once ready, make it answer a tiny request this often",
    )
    flag(
        "--command",
        dest="verbatim",
        action="store_true",
        help="run what follows `--`, in place of the planned command",
    )
    knobs = parser.add_argument_group("options of the engine, in one spelling for all of them")
    for name, kind in _KNOBS:
        spelled = "--" + name.replace("_", "-")
        if kind is bool:
            knobs.add_argument(spelled, action=argparse.BooleanOptionalAction)
        else:
            knobs.add_argument(spelled, type=kind, metavar="N" if kind is not str else "NAME")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _why(failure: dict[str, Any]) -> str:
    """The failure's kind, and the best there is to say about it on one line."""
    diagnosis = failure.get("diagnosis") or {}
    lines = failure.get("logTail", "").strip().splitlines()
    known = (diagnosis.get("summary"), *lines[-1:], failure.get("detail"), failure.get("reason"))
    said = next((text.strip() for text in known if text), "")
    return f"{failure['kind']}, {said}" if said else str(failure["kind"])


def _step(event: dict[str, Any]) -> str:
    match event:
        case {"kind": "reserved", "devices": devices, "port": port}:
            return f"reserved port {port} and {', '.join(devices) or 'no device'}"
        case {"kind": "launching", "attempt": attempt}:
            return "starting" if attempt == 1 else f"starting, attempt {attempt}"
        case {"kind": "spawned", "logPath": path}:
            return f"running; its log is {path}"
        case {"kind": "phase", "phase": phase}:
            return f"{phase} {event.get('detail', '')}".rstrip()
        case {"kind": "install-progress", "stage": stage}:
            return f"installing: {stage}"
        case _:
            return ""


def _show_plan(reply: PlanReply) -> None:
    plan = reply.plan
    rows = [
        ("runs", plan.kind + (f" {plan.image}" if plan.image else "")),
        ("argv", shlex.join(plan.argv)),
        ("env", ", ".join(sorted(plan.env)) or "none"),
        ("devices", ", ".join(plan.devices) or "none"),
        ("health", f"{plan.health.path}, within {plan.health.ready_deadline_ms / 1000:g} s"),
        ("dropped", ", ".join(reply.dropped) or "none"),
        *(("note", note) for note in reply.notes),
        ("fits", _fit(reply.fit)),
        *([] if reply.refusal is None else [("refused", reply.refusal)]),
    ]
    for name, value in rows:
        say(f"{name:<8} {printable(value)}")


def _fit(fit: Fit) -> str:
    verdict = {True: "yes", False: "no", None: "cannot tell"}[fit.fits]
    return f"{verdict}: {fit.why}"
