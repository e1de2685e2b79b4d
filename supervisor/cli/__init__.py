"""``enginectl``: the daemon's methods as commands, for people and for scripts.

It imports no event loop and reads nothing but its arguments before it calls: it is run by hand and
in loops, so it has to start fast.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from supervisor import __version__
from supervisor.cli import acting, checking, devices, doctor, launching, one, showing, watching
from supervisor.cli.context import Context
from supervisor.cli.exits import FAILED, INTERRUPTED, OK, USAGE, UsageError, refuse, report
from supervisor.cli.text import open_streams, silence, warn
from supervisor.client import Client, ClientError
from supervisor.contracts.paths import default_socket

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_ROOMS = (launching, showing, one, devices, acting, watching, checking, doctor)


class _Parser(argparse.ArgumentParser):
    """Its errors are told like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self.format_usage())

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        """argparse's own passes over what cannot be written."""
        (file or sys.stdout).write(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    words, behind = _split(given)
    open_streams()
    try:
        _check_text(given)
        code = _obey(words, behind)
        sys.stdout.flush()
        return code
    except UsageError as error:
        return refuse(error, json="--json" in words)
    except OSError as error:  # of stdout, for the client and stderr have none
        silence(1)
        if isinstance(error, BrokenPipeError):
            return OK  # its reader has seen enough
        warn(f"cannot write the output: {error.strerror}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _obey(words: list[str], behind: list[str] | None) -> int:
    try:
        parser, commands = _parser()
        args, strange = parser.parse_known_args(words)
        if strange:
            raise _not_understood(strange, commands[args.command], behind=args.takes_rest)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else USAGE
    if behind is not None and not args.takes_rest:
        raise UsageError(f"`{args.command}` takes nothing behind `--`")
    args.rest = tuple(behind or ())
    path = getattr(args, "socket", None) or default_socket(os.environ)
    json = hasattr(args, "json")
    try:
        with Client(path) as client:
            code: int = args.run(Context(client, json=json), args)
        return code
    except ClientError as error:
        name, until = getattr(args, "name", None), getattr(args, "until", "ready")
        return report(error, name, json=json, until=until)


def _check_text(words: Sequence[str]) -> None:
    """JSON has no way to say bytes that are no text."""
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            raise UsageError(f"{word!r} is not UTF-8, as all that the daemon is told has to be")


def _split(words: list[str]) -> tuple[list[str], list[str] | None]:
    """What is before the first ``--`` and what is behind it, which no parser may touch."""
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _not_understood(
    strange: list[str], command: argparse.ArgumentParser, *, behind: bool
) -> UsageError:
    from difflib import get_close_matches

    text = f"not understood: {' '.join(strange)}"
    flags = [word.partition("=")[0] for word in strange if word.startswith("-")]
    known = [flag for flag in command._option_string_actions if flag.startswith("--")]
    near = [match for flag in flags for match in get_close_matches(flag, known, 1)]
    if near:
        text += f"; did you mean {' '.join(near)}?"
    elif flags and behind:
        text += "; flags of the engine go behind `--`"
    return UsageError(text, command.format_usage())


def _parser() -> tuple[_Parser, Mapping[str, _Parser]]:
    """The parser, and that of each command."""
    common = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--socket", metavar="PATH", help="the daemon's socket")
    common.add_argument(
        "--json",
        action="store_true",
        help="print the daemon's own reply instead of text, and its own error on stderr",
    )
    parser = _Parser(
        prog="enginectl",
        parents=[common],
        allow_abbrev=False,
        description="Launch and supervise LLM inference engines.",
        epilog="Exit codes: 0 ok; 1 a launch, or anything else, failed or was refused; 2 usage or "
        "invalid launch; 3 `wait`: it has ended, ready or not; 4 no such instance; 69 no daemon, "
        "or one that leaves; 77 not allowed; 124 `wait`: timed out; 130 interrupted.",
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
    return parser, commands.choices
