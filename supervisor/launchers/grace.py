"""The time that a stop gives, which somebody may shorten while it runs."""

import math

import anyio


class Grace:
    """Of one engine. Times are on the event loop's clock."""

    def __init__(self) -> None:
        self._latest_s = math.inf
        self._scope: anyio.CancelScope | None = None

    def hasten(self, grace_ms: int) -> None:
        """What runs, or is about to, has this much more time at most."""
        self._latest_s = min(self._latest_s, anyio.current_time() + grace_ms / 1000)
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, self._latest_s)

    def running(self, grace_s: float) -> anyio.CancelScope:
        """To be entered: waits inside end when the time is over."""
        until = min(anyio.current_time() + grace_s, self._latest_s)
        self._scope = anyio.CancelScope(deadline=until)
        return self._scope

    def forget(self) -> None:
        """At the end of a stop, however it went: the next one has its own time."""
        self._latest_s, self._scope = math.inf, None
