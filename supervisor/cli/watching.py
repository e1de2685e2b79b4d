"""``logs`` and ``events``: what an engine says, and what the daemon says."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any, get_args

import msgspec
from msgspec import UNSET

from supervisor.cli.context import Add, Context, show_raw
from supervisor.cli.exits import OK
from supervisor.cli.text import line_count, printable, printable_line, say, tell
from supervisor.client import Client
from supervisor.contracts.event import Cursor, Event
from supervisor.contracts.rpc import LogLines, LogsParams, ReadEventsParams, SubscribeParams

_STAMPED = frozenset({"seq", "epoch", "at", "node", "kind", "instance", "nonce"})


def add_commands(add: Add) -> None:
    logs = add("logs", "Show the end of an engine's log.", run=show_logs)
    logs.add_argument("name", metavar="NAME")
    logs.add_argument("-n", "--lines", type=line_count, default=100, metavar="N")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    events = add("events", "Show the newest events, or follow them.", run=show_events)
    events.add_argument("-f", "--follow", action="store_true", help="go on with new ones")
    events.add_argument("-n", "--lines", type=line_count, default=None, metavar="N")
    events.add_argument("--after", type=_cursor, metavar="[EPOCH:]SEQ", help="all behind this one")
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
    client = context.client
    chosen: dict[str, Any] = {
        "kinds": tuple(sorted(args.kinds)) or UNSET,
        "instances": (args.name,) if args.name else UNSET,
    }
    if args.after is None:
        newest = args.lines if args.lines is not None else 0 if args.follow else 20
        read = client.read_events(ReadEventsParams(last=newest, **chosen))
        _show_events(context, read.events)
        after = read.cursor
    else:
        epoch, seq = args.after
        after = Cursor(epoch=epoch or _epoch(client), seq=seq)
    if args.follow:
        for event in client.follow_events(SubscribeParams(after=after, **chosen), _missed):
            _show_events(context, (event,))
    elif args.after is not None:
        _show_all_behind(context, after, chosen)
    return OK


def _show_all_behind(context: Context, after: Cursor, chosen: dict[str, Any]) -> None:
    while True:
        read = context.client.read_events(ReadEventsParams(after=after, limit=1_000, **chosen))
        if not read.events:
            return
        _show_events(context, read.events)
        after = read.cursor


def _show_events(context: Context, events: Iterable[bytes | msgspec.Raw]) -> None:
    for event in events:
        if context.json:
            show_raw(bytes(event))
        else:
            print(_line(msgspec.json.decode(event)), flush=True)


def _epoch(client: Client) -> str:
    return client.read_events(ReadEventsParams(last=0)).cursor.epoch


def _missed(cursor: Cursor) -> None:
    tell(f"(events before {cursor.epoch}:{cursor.seq} are not known any more; going on from there)")


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


def _cursor(text: str) -> tuple[str, int]:
    """The epoch, empty where it is the present one, and the number."""
    epoch, _, seq = text.rpartition(":")
    if not (seq.isascii() and seq.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither SEQ nor EPOCH:SEQ, as in an event")
    return epoch, int(seq)


def _kinds(text: str) -> frozenset[str]:
    asked = frozenset(part for part in text.split(",") if part)
    known = {str(event.__struct_config__.tag) for event in get_args(Event)}
    if unknown := sorted(asked - known):
        raise argparse.ArgumentTypeError(
            f"there is no kind {', '.join(map(repr, unknown))}; "
            f"there are {', '.join(sorted(known))}"
        )
    return asked
