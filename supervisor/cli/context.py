"""What a command works with."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from supervisor.cli.exits import OK
from supervisor.client import Client

T = TypeVar("T")


class Add(Protocol):
    """Adds a command to the parser."""

    def __call__(self, name: str, summary: str, **rest: object) -> argparse.ArgumentParser: ...


@dataclass(frozen=True, slots=True)
class Context:
    """The daemon, and whether its replies are shown to a person or to a program."""

    client: Client
    json: bool

    def show(self, reply: bytes, kind: type[T], render: Callable[[T], None]) -> int:
        """A result: byte for byte under ``--json``, else as ``render`` prints it."""
        if self.json:
            show_raw(reply)
        else:
            render(msgspec.json.decode(reply, type=kind))
        return OK


def show_raw(reply: bytes) -> None:
    """Bytes and a line end on stdout, at once, for a reader that follows."""
    sys.stdout.flush()
    sys.stdout.buffer.write(reply + b"\n")
    sys.stdout.buffer.flush()
