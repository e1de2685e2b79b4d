"""``doctor``: one screen that says what of this host is going to be trouble, and what to do.

It works without a daemon too, and then says what can be seen from here.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING

import msgspec

from supervisor.cli.context import Add, Context, show_raw
from supervisor.cli.exits import FAILED, OK
from supervisor.cli.text import printable, say, table

if TYPE_CHECKING:
    from supervisor.cli.doctor.checks import Row


def add_commands(add: Add) -> None:
    add("doctor", "Check this host and its daemon; exits with 1 where something fails.", run=run)


def run(context: Context, args: argparse.Namespace) -> int:
    from supervisor.cli.doctor.checks import examine
    from supervisor.cli.doctor.facts import gather

    rows = examine(gather(context.client, os.environ))
    failed = any(row.verdict == "fail" for row in rows)
    if context.json:
        show_raw(msgspec.json.encode({"ok": not failed, "checks": rows}))
    else:
        say(table(("CHECK", "STANDS", "FACT"), ((row.name, row.verdict, row.fact) for row in rows)))
        _say_advice(rows)
    return FAILED if failed else OK


def _say_advice(rows: "list[Row]") -> None:
    for row in rows:
        if row.advice:
            say(f"\n{row.name}: {printable(row.advice)}")
    sys.stdout.flush()
