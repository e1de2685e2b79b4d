"""What all readers do: take command lines on stdin, let the engine's own parser read each, and tell
what it made of them. Runs in an engine's own venv, and imports nothing of ours.

In: a JSON list of lists of words. Out: ``{"version", "flags", "read": [{"values", "changed"} or
{"error"}]}``. Values are all that the parser holds, ``changed`` names those that are not defaults.
"""

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

Values = dict[str, Any]


def answer(
    version: str, flags: Iterable[str], read: Callable[[list[str]], tuple[Values, Values]]
) -> None:
    """Serve one question. ``read(words)`` gives values and their defaults, or exits, or raises."""
    told: list[Values] = []
    for words in json.load(sys.stdin):
        noise = io.StringIO()
        try:
            with contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
                values, defaults = read(words)
        except (Exception, SystemExit) as refused:
            told.append({"error": (noise.getvalue() or repr(refused)).strip()[-500:]})
            continue
        held = {name: plain(value) for name, value in values.items()}
        unsaid = {name: plain(value) for name, value in defaults.items()}
        changed = sorted(name for name, value in held.items() if value != unsaid.get(name))
        told.append({"values": held, "changed": changed})
    result = json.dumps({"version": version, "flags": sorted(flags), "read": told})
    (sys.__stdout__ or sys.stdout).write(result)


def plain(value: Any) -> Any:
    """As JSON can carry it."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return repr(value)


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """Every spelling of every option of an argparse parser."""
    return list(parser._option_string_actions)


def defaults_of(parser: argparse.ArgumentParser) -> Values:
    """What an argparse parser's namespace holds when nothing is said."""
    return {action.dest: action.default for action in parser._actions} | parser._defaults
