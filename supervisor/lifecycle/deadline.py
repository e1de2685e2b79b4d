"""A deadline that may move: while an engine makes progress it is given more time, up to a cap."""

from dataclasses import dataclass

CAP_FACTOR = 4
"""A moving deadline ends at so many times the given one, where the launch names no cap."""


@dataclass(slots=True)
class Deadline:
    """On a monotonic clock, in nanoseconds."""

    ends_ns: int
    stall_ns: int | None = None
    """How long an engine may be without progress; None where the deadline does not move."""
    cap_ns: int = 0

    @property
    def moves(self) -> bool:
        return self.stall_ns is not None

    def progress(self, now_ns: int) -> None:
        """There was a sign of life just now. It never brings the deadline nearer."""
        if self.stall_ns is not None:
            self.ends_ns = max(self.ends_ns, min(now_ns + self.stall_ns, self.cap_ns))


def cap_ms(budget_ms: int, given_ms: int | None) -> int:
    """Where a deadline of ``budget_ms`` ends at the latest, counted from the start."""
    return max(budget_ms, given_ms or CAP_FACTOR * budget_ms)
