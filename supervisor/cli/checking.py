"""``config check``: would the daemon take this file?"""

import argparse
import os
import stat
from typing import TYPE_CHECKING

import msgspec

from supervisor.cli.context import Add, Context, show_raw
from supervisor.cli.exits import FAILED, OK
from supervisor.cli.text import printable, say, warn

if TYPE_CHECKING:
    from supervisor.contracts.config import Config

DEFAULT_FILE = "/etc/engine-supervisor/engined.toml"
"""What the systemd unit has the daemon read."""


def add_commands(add: Add) -> None:
    config = add("config", "Check a configuration file; no daemon is asked.", run=check)
    config.add_argument("action", choices=("check",))
    config.add_argument("file", nargs="?", default=DEFAULT_FILE, metavar="FILE", help=DEFAULT_FILE)


def check(context: Context, args: argparse.Namespace) -> int:
    from supervisor.contracts.config import ConfigError

    shown = printable(args.file)
    try:
        config = read_config(args.file)
    except OSError as error:
        return _refuse(context, f"cannot read {args.file}: {error.strerror or error}")
    except (ConfigError, UnicodeDecodeError) as error:
        return _refuse(context, f"{args.file}: {error}")
    if context.json:
        show_raw(msgspec.json.encode({"ok": True, "file": args.file}))
        return OK
    recipes = len(config.recipes)
    say(f"{shown} is valid ({recipes} recipe{'' if recipes == 1 else 's'})")
    return OK


def read_config(path: str) -> "Config":
    """An ordinary file's; a pipe or a device has no end.

    Raises ``OSError``, ``UnicodeDecodeError``, ``ConfigError``.
    """
    from supervisor.contracts.config import parse_config

    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("it is no ordinary file")
    with open(fd, encoding="utf-8") as file:
        return parse_config(file.read())


def _refuse(context: Context, why: str) -> int:
    if context.json:
        show_raw(msgspec.json.encode({"ok": False, "error": why}))
    else:
        warn(printable(why))
    return FAILED
