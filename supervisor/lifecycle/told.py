"""What the journal already says about an attempt that an earlier daemon left unfinished.

An event and a record cannot be written in one act, so a daemon that dies between the two leaves a
fact that was told and not recorded, or the other way round. The next one looks at both, and so each
attempt's outcome is told exactly once, however many daemons it took.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from supervisor.bus import Published
from supervisor.contracts.event import Event, Reserved, Restarting

Told = Mapping[type[Event], Event]
"""Of one attempt: the last event of each kind."""

NOTHING: Told = MappingProxyType({})


def told_of_attempts(history: Iterable[Published]) -> dict[str, Told]:
    """Of each launch, by nonce: what was said since its newest attempt began.

    Nothing where the history does not reach back to it.
    """
    found: dict[str, dict[type[Event], Event]] = {}
    for published in history:
        event = published.event
        if event.nonce:
            note(found.setdefault(event.nonce, {}), event)
    return dict(found)


def note(told: dict[type[Event], Event], event: Event) -> None:
    """Add what is said now; a new attempt begins with a clean sheet."""
    if isinstance(event, Reserved | Restarting):
        told.clear()
    told[type(event)] = event
