"""What the journal already says about an attempt that an earlier daemon left unfinished.

An event and the record cannot be written in one act, so a daemon that dies between the two leaves a
fact that was told and not recorded, or the other way round. The next one looks at both, and so each
attempt's outcome is told exactly once however many daemons it took.
"""

from collections.abc import Iterable

from supervisor.bus import Published
from supervisor.contracts.event import Event, Reserved, Restarting

Kinds = frozenset[type[Event]]


class Told:
    """Per launch, by nonce: the kinds of event since the beginning of its newest attempt."""

    def __init__(self, history: Iterable[Published] = ()) -> None:
        self._kinds: dict[str, set[type[Event]]] = {}
        for published in history:
            event = published.event
            if event.nonce:
                kinds = self._kinds.setdefault(event.nonce, set())
                if isinstance(event, Reserved | Restarting):
                    kinds.clear()
                kinds.add(type(event))

    def of(self, nonce: str) -> Kinds:
        """Empty where the history does not reach back to it."""
        return frozenset(self._kinds.get(nonce, ()))
