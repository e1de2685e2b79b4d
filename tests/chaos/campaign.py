"""The loop: a daemon lives for a random while under traffic, is killed, and the next one comes."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.contracts.rpc import DrainParams
from tests.chaos.audit import Audit
from tests.chaos.nursery import Nursery
from tests.chaos.traffic import Traffic
from tests.chaos.world import CARDS, World

REST_EVERY = 25
"""Kills between two moments of rest."""
SHORTEST_S, LONGEST_S = 0.0, 0.9
"""Of a life, from the fork on. The shortest ones end before the daemon serves."""


@dataclass
class Outcome:
    """What a campaign found."""

    kills: int = 0
    before_serving: int = 0
    """Daemons that were killed before they served."""
    most_engines: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    orders: dict[str, int] = field(default_factory=dict)
    witnessed: dict[str, int] = field(default_factory=dict)
    stderr: str = ""

    @property
    def good(self) -> bool:
        return not any(self.counts.values()) and not self.stderr


def campaign(
    folder: Path,
    nursery: Nursery,
    *,
    kills: int,
    engines: int,
    seconds: float = float("inf"),
    seed: int = 0,
    on_kill: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """About so many ``engines`` at once, for there are a few devices more, of which some engines
    want two; and there are twice as many names that want some. Leaves nothing behind.
    """
    chance, outcome, began = random.Random(seed), Outcome(), time.monotonic()
    names = tuple(f"e{number}" for number in range(engines * 2))
    world = World(folder, nursery, CARDS[: engines * 5 // 4])
    traffic, audit = Traffic(world, names, seed), Audit(world)
    try:
        world.start()
        traffic.begin()
        try:
            while outcome.kills < kills and time.monotonic() - began < seconds:
                outcome.kills += 1
                time.sleep(chance.uniform(SHORTEST_S, LONGEST_S))
                world.kill()
                audit.of_the_dead()
                outcome.most_engines = max(outcome.most_engines, _engines(audit))
                world.begin()
                if chance.random() < 0.2:
                    outcome.before_serving += 1
                    outcome.kills += 1
                    time.sleep(chance.uniform(0, 0.08))
                    world.kill()
                    audit.of_the_dead()
                    world.begin()
                assert world.serving(), f"the daemon does not start: {world.stderr()}"
                audit.of_the_living()
                if outcome.kills % REST_EVERY == 0 or outcome.kills >= kills:
                    traffic.hold()
                    audit.at_rest()
                    audit.of_the_orders(traffic.orders)
                    traffic.flow()
                on_kill(outcome)
        finally:
            traffic.end()
        audit.at_rest()
        audit.of_the_orders(traffic.orders)
        audit.of_the_journal()
        with world.client() as client:
            client.drain(DrainParams(grace_ms=200))
        audit.at_the_end()
        audit.of_the_journal()
    finally:
        world.clear()
    outcome.seconds = time.monotonic() - began
    outcome.counts, outcome.findings = audit.counts, audit.findings
    outcome.orders, outcome.witnessed = dict(traffic.orders.given), dict(audit.summary())
    outcome.stderr = world.stderr()
    return outcome


def _engines(audit: Audit) -> int:
    return sum(entry.what == "start" for entry in audit.book.living())
