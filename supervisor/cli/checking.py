"""``config check``: would the daemon take this file?"""

import argparse
from pathlib import Path

from supervisor.cli.context import Add, Context
from supervisor.cli.exits import FAILED, OK
from supervisor.cli.text import printable, say, warn

DEFAULT_FILE = "/etc/engine-supervisor/config.toml"


def add_commands(add: Add) -> None:
    config = add("config", "Check a configuration file; no daemon is asked.", run=check)
    config.add_argument("action", choices=("check",))
    config.add_argument("file", nargs="?", default=DEFAULT_FILE, metavar="FILE")


def check(context: Context, args: argparse.Namespace) -> int:
    from supervisor.contracts.config import ConfigError, parse_config

    shown = printable(args.file)
    try:
        config = parse_config(Path(args.file).read_text(encoding="utf-8"))
    except OSError as error:
        warn(f"cannot read {shown}: {error.strerror}")
        return FAILED
    except (ConfigError, UnicodeDecodeError) as error:
        warn(f"{shown}: {printable(str(error))}")
        return FAILED
    recipes = len(config.recipes)
    say(f"{shown} is valid ({recipes} recipe{'' if recipes == 1 else 's'})")
    return OK
