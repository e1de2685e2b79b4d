"""What the journal already says about an attempt that an earlier daemon left unfinished.

An event and a record cannot be written in one act, so a daemon that dies between the two leaves a
fact that was told and not recorded, or the other way round. The next one looks at both, and so each
attempt's outcome is told exactly once, however many daemons it took.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from supervisor.bus import Published
from supervisor.contracts.event import (
    Event,
    LaunchFailed,
    Reserved,
    Restarting,
    Spawned,
    Warning_,
    WarningCode,
)
from supervisor.contracts.instance import InstanceRecord

Subject = type[Event] | WarningCode
Told = Mapping[Subject, Event]
"""Of one attempt: the last event of each kind, and the last warning of each code."""

NOTHING: Told = MappingProxyType({})


class History:
    """What was said of each launch, attempt by attempt, as far as the events reach back."""

    def __init__(self, events: Iterable[Published]) -> None:
        self._attempts: dict[str, list[dict[Subject, Event]]] = {}
        for published in events:
            event = published.event
            if not event.nonce:
                continue
            if isinstance(event, Reserved | Restarting):
                self._attempts.setdefault(event.nonce, []).append({})
            elif isinstance(event, LaunchFailed):  # there may have been no time for ``reserved``
                self._attempts.setdefault(event.nonce, [{}])
            if attempts := self._attempts.get(event.nonce):
                _add(attempts[-1], event)

    def of(self, record: InstanceRecord) -> Told:
        """Of the attempt that the record is about: the newest one, unless a disk that was full has
        kept the record behind.
        """
        attempts = self._attempts.get(record.nonce, [])
        for told in reversed(attempts):
            spawned = told.get(Spawned)
            if isinstance(spawned, Spawned) and spawned.ref == record.ref:
                return told
        return attempts[-1] if attempts else NOTHING


def note(told: dict[Subject, Event], event: Event) -> None:
    """Add what is said now; a new attempt begins with a clean sheet."""
    if isinstance(event, Reserved | Restarting):
        told.clear()
    _add(told, event)


def _add(told: dict[Subject, Event], event: Event) -> None:
    told[type(event)] = event
    if isinstance(event, Warning_):
        told[event.code] = event
