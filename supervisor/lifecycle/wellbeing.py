"""How an engine is that had been ready: the misses in a row, and since when there are too many."""

from supervisor.contracts.event import Recovered, Unhealthy
from supervisor.health.outcome import NotReady, Outcome
from supervisor.instances.state import unhealthy_after
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger


class Wellbeing:
    """Counts probes, and says so when the line is crossed."""

    def __init__(self, house: House, ledger: Ledger) -> None:
        self._clock = house.clock
        self._ledger = ledger
        self._unwell_since_ns: int | None = None
        self.misses = 0
        self._doubt: str | None = None
        self._doubted: str | None = None

    def wonder(self, doubt: str | None) -> None:
        """Once a round: why nothing can be known of the engine. What lasts for two is news, once:
        a container engine that is being restarted is back by then.
        """
        if doubt is not None and doubt == self._doubt and doubt != self._doubted:
            self._doubted = doubt
            self._ledger.warn("identity-unknown", doubt)
        if doubt is None:
            self._doubted = None
        self._doubt = doubt

    def judge(self, seen: Outcome) -> int:
        """Take one probe's outcome. How long the engine has been unhealthy by now, in ms.

        Where there are no rights to look, or the answer cannot be proved to be the engine's, the
        probe says nothing about the engine.
        """
        if isinstance(seen, NotReady) and seen.kind in ("denied", "unproved"):
            return 0
        now, since = self._clock.monotonic_ns(), self._unwell_since_ns
        if isinstance(seen, NotReady):
            self.misses += 1
            if since is None and self.misses >= unhealthy_after(self._ledger.record):
                since = self._unwell_since_ns = now
                self._ledger.publish(Unhealthy(reason=seen.text, misses=self.misses))
        else:
            self.misses = 0
            if since is not None:
                self._unwell_since_ns = None
                self._ledger.publish(Recovered(unhealthy_ms=(now - since) // 1_000_000))
        return 0 if since is None else (now - since) // 1_000_000
