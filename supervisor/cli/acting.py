"""Commands that change an instance or wait for one, and ``rpc`` for whatever has no command."""

import argparse
import os
import sys

import msgspec
from msgspec import UNSET

from supervisor.cli.context import Add, Context, show_raw
from supervisor.cli.exits import FAILED, NOT_READY, OK, UsageError, report
from supervisor.cli.launching import progress, show_state
from supervisor.cli.showing import reason_of
from supervisor.cli.text import duration_ms, printable, say, warn
from supervisor.client import RpcError
from supervisor.contracts.engine import ENGINE_IDS
from supervisor.contracts.instance import InstanceView, PinnedHandle
from supervisor.contracts.rpc import (
    DrainParams,
    DrainReply,
    PinParams,
    ReleaseParams,
    ReleaseReply,
    ReloadReply,
    StopParams,
    WaitParams,
)


def add_commands(add: Add) -> None:
    for name, summary, run in (
        ("stop", "End an instance, and return once its devices are free.", stop),
        ("cancel", "End a launch that is not ready yet.", cancel),
        ("restart", "End an engine and start it again as it was; wait for it.", restart),
    ):
        command = add(name, summary, run=run)
        if name == "stop":
            command.add_argument("names", metavar="NAME", nargs="+")
        else:
            command.add_argument("name", metavar="NAME")
        command.add_argument("--grace", type=duration_ms, metavar="20s", help="before the kill")
        command.add_argument("--nonce", help="only this one launch of the name")
    add("reload", "Have the daemon read its configuration file again.", run=reload)
    draining = add("drain", "Stop every instance.", run=drain)
    draining.add_argument("--grace", type=duration_ms, metavar="20s", help="before the kill")
    pinning = add("pin", "Hold devices without a process, until `release`.", run=pin)
    pinning.add_argument("name", metavar="NAME")
    pinning.add_argument("--engine", required=True, choices=ENGINE_IDS, metavar="ENGINE")
    pinning.add_argument(
        "--device", dest="devices", action="extend", nargs="+", required=True, metavar="ID",
        help="as `enginectl devices` names it",
    )  # fmt: skip
    pinning.add_argument("--holder", default=_me(), help="who has them (default: %(default)s)")
    releasing = add("release", "Give up a hold that has no process.", run=release)
    releasing.add_argument("name", metavar="NAME")
    releasing.add_argument(
        "--force", action="store_true",
        help="of what cannot be read, or be looked at, although something of it may be alive",
    )  # fmt: skip
    waiting = add("wait", "Wait until an instance is ready, or has ended.", run=wait)
    waiting.add_argument("name", metavar="NAME")
    waiting.add_argument("--for", dest="until", choices=("ready", "exited"), default="ready")
    waiting.add_argument("--timeout", type=duration_ms, metavar="90s")
    calling = add("rpc", "Call a method; its result is printed as it came.", run=call)
    calling.add_argument("method", metavar="METHOD", help="rpc.discover lists them")
    calling.add_argument("params", metavar="JSON", nargs="?", help="an object; `-` reads stdin")


def stop(context: Context, args: argparse.Namespace) -> int:
    """All of them, one after the other; the first that could not be stopped gives the exit code."""
    code = OK
    for name in args.names:
        try:
            reply = context.client.raw("instance.stop", _stop_params(args, name), timeout=None)
        except RpcError as error:
            code = code or report(error, name, json=context.json)
        else:
            context.show(reply, InstanceView, _show_stopped)
    return code


def restart(context: Context, args: argparse.Namespace) -> int:
    told, params = progress(context, args.name), _stop_params(args, args.name)
    reply = context.client.raw("instance.restart", params, timeout=None, on_notice=told)
    return context.show(reply, InstanceView, show_state)


def reload(context: Context, args: argparse.Namespace) -> int:
    reply = context.client.raw("supervisor.reload", timeout=None)
    return context.show(reply, ReloadReply, _show_reloaded)


def drain(context: Context, args: argparse.Namespace) -> int:
    params = DrainParams(grace_ms=UNSET if args.grace is None else args.grace)
    reply = context.client.raw("supervisor.drain", params, timeout=None)
    shown = context.show(reply, DrainReply, _show_drained)
    left = msgspec.json.decode(reply, type=DrainReply).failed
    return FAILED if left else shown


def pin(context: Context, args: argparse.Namespace) -> int:
    params = PinParams(
        name=args.name,
        holder=args.holder,
        engine=args.engine,
        devices=tuple(name for words in args.devices for name in words.split(",") if name),
    )
    return context.show(context.client.raw("instance.pin", params), InstanceView, _show_pinned)


def release(context: Context, args: argparse.Namespace) -> int:
    params = ReleaseParams(name=args.name, force=args.force)
    reply = context.client.raw("instance.release", params, timeout=None)
    name = printable(args.name)
    return context.show(
        reply,
        ReleaseReply,
        lambda told: say(f"{name} released {printable(','.join(told.devices))}".rstrip()),
    )


def cancel(context: Context, args: argparse.Namespace) -> int:
    reply = context.client.raw("instance.cancel", _stop_params(args, args.name), timeout=None)
    return context.show(reply, InstanceView, _show_cancelled)


def wait(context: Context, args: argparse.Namespace) -> int:
    timeout_ms = UNSET if args.timeout is None else args.timeout
    params = WaitParams(name=args.name, for_=args.until, timeout_ms=timeout_ms)
    told = progress(context, args.name)
    try:
        reply = context.client.raw("instance.wait", params, timeout=None, on_notice=told)
    except RpcError as error:
        if error.failure is None:
            raise
        report(error, args.name, json=context.json)
        return NOT_READY
    return context.show(reply, InstanceView, show_state)


def call(context: Context, args: argparse.Namespace) -> int:
    try:
        text = sys.stdin.read() if args.params == "-" else args.params or "{}"
        msgspec.json.decode(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the params cannot be read: {error}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"the params are not valid JSON: {error}") from None
    try:
        show_raw(context.client.raw(args.method, msgspec.Raw(text.encode()), timeout=None))
    except RpcError as error:
        return report(error, json=context.json, coded=True)
    return OK


def _stop_params(args: argparse.Namespace, name: str) -> StopParams:
    return StopParams(
        name=name,
        nonce=args.nonce or UNSET,
        grace_ms=UNSET if args.grace is None else args.grace,
    )


def _show_drained(reply: DrainReply) -> None:
    for name in reply.stopped:
        say(f"{printable(name)} stopped")
    for name, reason in reply.failed.items():
        warn(f"{printable(name)}: {printable(reason)}")


def _show_reloaded(reply: ReloadReply) -> None:
    say(f"changed: {', '.join(map(printable, reply.changed)) or 'nothing'}")
    if reply.at_restart:
        say(f"at the next start of the daemon: {', '.join(map(printable, reply.at_restart))}")


def _show_stopped(view: InstanceView) -> None:
    why = printable(reason_of(view))
    by_itself = not view.stop_asked and why
    say(f"{_name(view)} had ended by itself: {why}" if by_itself else f"{_name(view)} stopped")


def _show_cancelled(view: InstanceView) -> None:
    if view.state in ("ready", "unhealthy"):
        say(f"{_name(view)} is {view.state}: there was no launch to cancel, and it was left alone")
    else:
        say(f"{_name(view)} cancelled")


def _show_pinned(view: InstanceView) -> None:
    holder = view.record.ref.holder if isinstance(view.record.ref, PinnedHandle) else "-"
    say(f"{_name(view)} holds {printable(','.join(view.record.devices))} for {printable(holder)}")


def _me() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or f"uid {os.getuid()}"


def _name(view: InstanceView) -> str:
    return printable(view.record.name)
