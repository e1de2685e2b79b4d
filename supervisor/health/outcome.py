"""What one probe found: ``Ready``, or ``NotReady`` with the kind of miss and its words."""

from dataclasses import dataclass
from typing import Literal

MissKind = Literal[
    "refused",
    "unreachable",
    "timeout",
    "reset",
    "malformed",
    "status",
    "loading",
    "foreign",
    "unproved",
    "denied",
]
"""Why a probe is no success.

``refused``: nothing listens. ``unreachable``: the connect failed otherwise. ``timeout``: not
accepted, or not answered, in time. ``reset``: the server hung up. ``malformed``: no HTTP.
``status``: not a 2xx. ``loading``: a 2xx whose body says "not yet". ``foreign``: the server is
no member of the instance's tree. ``unproved``: the server's side was not found. ``denied``:
there are no rights to look, which waiting does not mend.
"""

TEXT_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine itself said that it is ready."""

    text: str


@dataclass(frozen=True, slots=True)
class NotReady:
    """A miss. ``text`` is safe to show: bounded, without control characters."""

    kind: MissKind
    text: str


Outcome = Ready | NotReady


class Miss(Exception):
    """Ends a probe from anywhere below it, with text as raw as it came."""

    def __init__(self, kind: MissKind, text: str) -> None:
        super().__init__(text)
        self.kind: MissKind = kind
        self.text = text


class Lost(Miss):
    """The connection is gone, which on one that had been kept or parked is no miss yet."""

    def __init__(self, text: str) -> None:
        super().__init__("reset", text)


def printable(text: str) -> str:
    """Text from a server, fit for an event: it can neither forge a line nor flood a log.

    Whatever Unicode calls unprintable is escaped: control characters, line separators, and the
    invisible ones that turn the direction of writing.
    """
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[: TEXT_LIMIT + 1]
    )
    return escaped if len(escaped) <= TEXT_LIMIT else escaped[: TEXT_LIMIT - 1] + "…"
