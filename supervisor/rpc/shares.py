"""How much of the daemon one user's connections may take, so that there is always some left.

Whoever is no admin has a share: so many connections, and so many bytes of requests that have begun
and not ended. Some connections are kept for admins, who must be able to stop an engine whatever
others do.
"""

from collections import Counter
from dataclasses import dataclass

MAX_CONNECTIONS = 4096
RESERVED = 64
"""Of them, for admins alone."""
PER_USER = 512
UNFINISHED_BYTES = 16 << 20
"""Of one user's requests that have not ended."""


@dataclass(slots=True)
class _Held:
    uid: int | None
    admin: bool
    unfinished: int = 0


class Shares:
    """The books. Used on the loop's thread only; a connection is known by its own key."""

    def __init__(self, most: int = MAX_CONNECTIONS) -> None:
        self._most = most
        self._held: dict[object, _Held] = {}
        self._users = Counter[int | None]()
        self._unfinished = Counter[int | None]()

    def admit(self, key: object, uid: int | None, *, admin: bool) -> bool:
        """False where there are too many connections, of all or of this user."""
        if not admin and self._users[uid] >= PER_USER:
            return False
        reserved = 0 if admin else min(RESERVED, self._most // 2)
        if len(self._held) >= self._most - reserved:
            return False
        self._held[key] = _Held(uid, admin)
        self._users[uid] += 1
        return True

    def keep(self, key: object, unfinished: int) -> bool:
        """Note how many bytes this connection's unfinished request has. False where that is too
        much for its user."""
        held = self._held.get(key)
        if held is None:
            return True
        self._unfinished[held.uid] += unfinished - held.unfinished
        held.unfinished = unfinished
        return held.admin or self._unfinished[held.uid] <= UNFINISHED_BYTES

    def leave(self, key: object) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._users[held.uid] -= 1
            self._unfinished[held.uid] -= held.unfinished
            for counter in (self._users, self._unfinished):
                if not counter[held.uid]:
                    del counter[held.uid]
