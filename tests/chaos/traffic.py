"""What goes on while daemons die: launches, stops, restarts, and engines that are killed.

Every order is written down before it is given, so that afterwards each end of an engine and each
start of one can be held against the orders: what nobody ordered, the daemon did on its own.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from supervisor.client import Client, ClientError, DaemonUnreachable
from supervisor.contracts.instance import InstanceView
from supervisor.contracts.rpc import StopParams
from tests.chaos.book import kill
from tests.chaos.world import World

CLIENTS = 3
GRACE_MS = 150
PAUSE_S = 0.12
"""On average, between two orders of one client."""

TREES = ("", "", "session", "detached", "session,detached+deaf", "deaf")
ENDS: tuple[dict[str, float], ...] = (
    *[{}] * 12,
    {"load": 0.5},
    {"load": 0.5},
    {"exit_after": 1.5},
    {"exit_after": 0.02, "exit_code": 3},
)
POLICIES = ("never", "on-failure", "always")


class Orders:
    """By launch (its nonce): what was asked of it."""

    def __init__(self) -> None:
        self.restarts: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        self.killed: set[tuple[int, int]] = set()
        """Processes that were killed from outside."""
        self.given: Counter[str] = Counter()
        """How many of each kind, for people."""


class Traffic:
    """A few clients, each a thread with a connection of its own, made anew after each daemon."""

    def __init__(self, world: World, names: tuple[str, ...], seed: int) -> None:
        self._world = world
        self._names = names
        self._seed = seed
        self._flowing = threading.Event()
        self._over = False
        self._busy = 0
        self._idle = threading.Condition()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CLIENTS)]
        self._book = threading.Lock()
        self.orders = Orders()

    def begin(self) -> None:
        self._flowing.set()
        for thread in self._threads:
            thread.start()

    def hold(self) -> None:
        """Give no further orders, and return when the given ones were answered."""
        self._flowing.clear()
        with self._idle:
            self._idle.wait_for(lambda: self._busy == 0)

    def flow(self) -> None:
        self._flowing.set()

    def end(self) -> None:
        self._over = True
        self._flowing.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        chance = random.Random(self._seed * CLIENTS + number)
        acts: list[Callable[[Client, random.Random], None]] = [
            *[self._launch] * 12,
            self._stop,
            *[self._restart] * 2,
            self._kill,
        ]
        while not self._over:
            self._flowing.wait()
            with self._idle:
                self._busy += 1
            try:
                with suppress(ClientError), self._world.client() as client:
                    while self._flowing.is_set() and not self._over:
                        chance.choice(acts)(client, chance)
                        time.sleep(chance.uniform(0, 2 * PAUSE_S))
            finally:
                with self._idle:
                    self._busy -= 1
                    self._idle.notify_all()
            time.sleep(0.01)

    def _launch(self, client: Client, chance: random.Random) -> None:
        knobs: dict[str, Any] = {"children": chance.choice(TREES), **chance.choice(ENDS)}
        wish: dict[str, Any] = {"device_count": chance.choice((1, 1, 1, 2))}
        if chance.random() < 0.3:
            wish = {"devices": (chance.choice(self._world.cards),)}
        self.orders.given["launch"] += 1
        with _refusals():
            client.launch(
                self._world.params(
                    chance.choice(self._names),
                    binary=self._world.binary(**knobs),
                    restart=chance.choice(POLICIES),
                    wait=chance.random() < 0.2,
                    **wish,
                )
            )

    def _stop(self, client: Client, chance: random.Random) -> None:
        if view := _any(client, chance):
            nonce = view.record.nonce
            self.orders.stops[nonce] += 1
            self.orders.given["stop"] += 1
            with _refusals():
                client.stop(StopParams(name=view.record.name, nonce=nonce, grace_ms=GRACE_MS))

    def _restart(self, client: Client, chance: random.Random) -> None:
        if view := _any(client, chance):
            nonce = view.record.nonce
            self.orders.restarts[nonce] += 1
            self.orders.given["restart"] += 1
            with _refusals():
                client.restart(StopParams(name=view.record.name, nonce=nonce, grace_ms=GRACE_MS))

    def _kill(self, _: Client, chance: random.Random) -> None:
        with self._book:
            living = self._world.book.living()
        if living:
            victim = chance.choice(living)
            self.orders.killed.add(victim.key)
            self.orders.given["kill of an engine" if victim.what == "start" else "kill"] += 1
            kill(victim)


def _any(client: Client, chance: random.Random) -> InstanceView | None:
    views = client.list().instances
    return chance.choice(views) if views else None


class _refusals:
    """Passes over what the daemon refuses; a daemon that is gone is passed on."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> bool:
        return isinstance(error, ClientError) and not isinstance(error, DaemonUnreachable)
