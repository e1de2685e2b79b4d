"""The number of devices that a launch needs: what it names, and what its own words ask for."""

import dataclasses
import os
import re
import stat
from collections.abc import Iterator

from supervisor.engines.registry import engine_spec
from supervisor.lifecycle.order import Order, needed

LARGEST_CONFIG = 256 << 10
_SCALAR = re.compile(r"""(['"]?)([A-Za-z][\w-]*)\1\s*:\s+(['"]?)([^'"\s#]+)\3\s*(?:#.*)?""")
"""A line of a flat YAML mapping. What is nested, or of several lines, counts no devices."""


def config_file(order: Order) -> str | None:
    """The file in which the order's engine will look for more flags, where we can read it."""
    spec = engine_spec(order.engine)
    if spec is None or order.runtime == "docker":
        return None
    path = spec.config((*order.extra_args, *(order.command or ())[1:]))
    return path if path and path.startswith("/") else None


def with_config(order: Order, path: str) -> Order:
    """The order with the devices that its engine's file asks for. Blocks.

    A file that cannot be read is left for the engine to complain of. Raises ``InvalidLaunch``.
    """
    spec = engine_spec(order.engine)
    words = tuple(_words(_text(path)))
    if spec is None or not words:
        return order
    said = (*order.extra_args, *(order.command or ())[1:])
    asked = spec.demand(order.options, said, order.env, words)
    return dataclasses.replace(order, need=needed(order.params, asked))


def _text(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        return file.read(LARGEST_CONFIG).decode(errors="replace")


def _words(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if match := _SCALAR.fullmatch(line.rstrip()):
            yield f"--{match[2]}"
            yield match[4]
