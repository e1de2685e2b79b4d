"""What the journal already says about an attempt that an earlier daemon left unfinished.

An event and a record cannot be written in one act, so a daemon that dies between the two leaves a
fact that was told and not recorded, or the other way round. The next one looks at both, and so each
attempt's outcome is told exactly once, however many daemons it took.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from supervisor.bus import Published
from supervisor.contracts.event import Event, LaunchFailed, Reserved, Restarting, Spawned
from supervisor.contracts.instance import InstanceRecord

Told = Mapping[type[Event], Event]
"""Of one attempt: the last event of each kind."""

NOTHING: Told = MappingProxyType({})


class History:
    """What was said of each launch, attempt by attempt, as far as the events reach back."""

    def __init__(self, events: Iterable[Published]) -> None:
        self._attempts: dict[str, list[dict[type[Event], Event]]] = {}
        for published in events:
            event = published.event
            if not event.nonce:
                continue
            if isinstance(event, Reserved | Restarting):
                self._attempts.setdefault(event.nonce, []).append({})
            elif isinstance(event, LaunchFailed):  # there may have been no time for ``reserved``
                self._attempts.setdefault(event.nonce, [{}])
            if attempts := self._attempts.get(event.nonce):
                attempts[-1][type(event)] = event

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


def note(told: dict[type[Event], Event], event: Event) -> None:
    """Add what is said now; a new attempt begins with a clean sheet."""
    if isinstance(event, Reserved | Restarting):
        told.clear()
    told[type(event)] = event
