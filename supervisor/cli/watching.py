"""``logs`` and ``events``: what an engine says, and what the daemon says."""

import argparse
import sys
from typing import Any, get_args

import msgspec

from supervisor.cli.context import Add, Context, show_raw
from supervisor.cli.exits import OK
from supervisor.cli.text import line_count, printable, printable_line, say
from supervisor.client import Client, RpcError
from supervisor.contracts.event import Cursor, Event
from supervisor.contracts.rpc import LogLines, LogsParams, SubscribeParams, Subscription

_STAMPED = frozenset({"seq", "epoch", "at", "node", "kind", "instance", "nonce"})


class _Head(msgspec.Struct):
    seq: int
    kind: str
    instance: str | None = None


def add_commands(add: Add) -> None:
    logs = add("logs", "Show the end of an engine's log.", run=show_logs)
    logs.add_argument("name", metavar="NAME")
    logs.add_argument("-n", "--lines", type=line_count, default=100, metavar="N")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    events = add("events", "Show the newest events, or follow them.", run=show_events)
    events.add_argument("-f", "--follow", action="store_true", help="go on with new ones")
    events.add_argument("-n", "--lines", type=line_count, default=None, metavar="N")
    events.add_argument("--after", type=_cursor, metavar="EPOCH:SEQ", help="all behind this place")
    events.add_argument("--kinds", type=_kinds, default=frozenset(), metavar="KIND,KIND")
    events.add_argument("--instance", dest="name", metavar="NAME", help="of this one only")


def show_logs(context: Context, args: argparse.Namespace) -> int:
    if not args.follow:
        reply = context.client.raw("instance.logs", LogsParams(name=args.name, lines=args.lines))
        return context.show(reply, LogLines, lambda log: _show_lines(log.lines))
    if context.json:
        for told in context.client.follow_raw(args.name, args.lines):
            show_raw(told)
    else:
        for lines in context.client.follow(args.name, args.lines):
            _show_lines(lines)
    return OK


def show_events(context: Context, args: argparse.Namespace) -> int:
    """Filtered here and not by the daemon: the last event tells when one has caught up."""
    wanted = args.lines if args.lines is not None else 0 if args.follow else 20
    begun, first = _begin(context.client, args.after, wanted)
    seen = first
    if not args.follow and seen >= begun.cursor.seq:
        return OK
    for event in context.client.events(begun.subscription):
        head = msgspec.json.decode(event, type=_Head)
        if (not args.kinds or head.kind in args.kinds) and args.name in (None, head.instance):
            if context.json:
                show_raw(event)
            else:
                print(_line(msgspec.json.decode(event)), flush=True)
        if not args.follow and head.seq >= begun.cursor.seq:
            break
    return OK


def _begin(client: Client, after: Cursor | None, newest: int) -> tuple[Subscription, int]:
    """Subscribe, and say which event is the last that will not come.

    How far back the daemon remembers is not told, so fewer events are asked for until it does.
    """
    if after is not None:
        return client.subscribe(SubscribeParams(after=after)), after.seq
    begun = client.subscribe(SubscribeParams())
    while newest > 0:
        place = Cursor(epoch=begun.cursor.epoch, seq=max(0, begun.cursor.seq - newest))
        try:
            older = client.subscribe(SubscribeParams(after=place))
        except RpcError as error:
            if error.valid_cursor is None:
                raise
            newest //= 2
        else:
            client.unsubscribe(begun.subscription)
            return older, place.seq
    return begun, begun.cursor.seq


def _show_lines(lines: tuple[str, ...]) -> None:
    for line in lines:
        say(printable_line(line))
    sys.stdout.flush()


def _line(event: dict[str, Any]) -> str:
    head = (event["at"], str(event["seq"]), event["kind"], event.get("instance", "-"))
    rest = (f"{name}={_value(value)}" for name, value in event.items() if name not in _STAMPED)
    return printable(" ".join((*head, *rest)))


def _value(value: Any) -> str:
    return (
        value
        if isinstance(value, str) and " " not in value
        else msgspec.json.encode(value).decode()
    )


def _cursor(text: str) -> Cursor:
    epoch, colon, seq = text.rpartition(":")
    if not colon or not seq.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not EPOCH:SEQ, as in an event")
    return Cursor(epoch=epoch, seq=int(seq))


def _kinds(text: str) -> frozenset[str]:
    asked = frozenset(part for part in text.split(",") if part)
    known = {str(event.__struct_config__.tag) for event in get_args(Event)}
    if unknown := sorted(asked - known):
        raise argparse.ArgumentTypeError(
            f"there is no kind {', '.join(map(repr, unknown))}; "
            f"there are {', '.join(sorted(known))}"
        )
    return asked
