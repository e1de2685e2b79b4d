"""``enginectl``: the daemon's methods as commands, for people and for scripts.

It imports no event loop and reads nothing but its arguments before it calls: it is run by hand and
in loops, so it has to start fast.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from supervisor import __version__
from supervisor.cli import acting, checking, devices, launching, showing, watching
from supervisor.cli.context import Context
from supervisor.cli.exits import INTERRUPTED, OK, USAGE, UsageError, report
from supervisor.cli.text import warn
from supervisor.client import Client, ClientError
from supervisor.contracts.paths import default_socket

_ROOMS = (launching, showing, devices, acting, watching, checking)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    words, behind = _split(words)
    try:
        args = _parser().parse_args(words)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else USAGE
    if behind is not None and not args.takes_rest:
        warn(f"`{args.command}` takes nothing behind `--`")
        return USAGE
    args.rest = tuple(behind or ())
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    return _run(args)


def _run(args: argparse.Namespace) -> int:
    path = getattr(args, "socket", None) or default_socket(os.environ)
    json = hasattr(args, "json")
    try:
        with Client(path) as client:
            code: int = args.run(Context(client, json=json), args)
        sys.stdout.flush()
        return code
    except ClientError as error:
        name, until = getattr(args, "name", None), getattr(args, "until", "ready")
        return report(error, name, json=json, until=until)
    except UsageError as error:
        warn(str(error))
        return USAGE
    except BrokenPipeError:
        # The reader of our output has seen enough. Python would complain once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """What is before the first ``--`` and what is behind it, which no parser may touch."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--socket", metavar="PATH", help="the daemon's socket")
    common.add_argument(
        "--json",
        action="store_true",
        help="print the daemon's own reply instead of text, and its own error on stderr",
    )
    parser = argparse.ArgumentParser(
        prog="enginectl",
        parents=[common],
        allow_abbrev=False,
        description="Launch and supervise LLM inference engines.",
        epilog="Exit codes: 0 ok; 1 a launch, or anything else, failed or was refused; 2 usage or "
        "invalid launch; 3 `wait`: it ended before it was ready; 4 no such instance; 69 no daemon; "
        "77 not allowed; 124 `wait`: timed out; 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"enginectl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str, **rest: object) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(
            name, parents=[common], allow_abbrev=False, help=summary, description=summary
        )
        made.set_defaults(takes_rest=False, **rest)
        return made

    for room in _ROOMS:
        room.add_commands(add)
    return parser
