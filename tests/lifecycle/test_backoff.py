"""LIF-3: attempts are bounded, pauses grow, and only a stable period makes them short again.

A third of the seconds of a person's policy: 0.3, 0.6, 1.2, four attempts, stable after 0.5.
"""

import time
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.config import Config, DevicesConfig, RestartConfig
from supervisor.contracts.event import (
    Event,
    Exited,
    GaveUp,
    LaunchFailed,
    Launching,
    Ready,
    Restarting,
    Spawned,
)
from supervisor.contracts.failure import ExitedEarly
from tests.lifecycle.house import CARDS, POOL, A, Home, opened

pytestmark = pytest.mark.anyio

INITIAL_S, ATTEMPTS = 0.3, 4
CONFIG = Config(
    ports=POOL,
    devices=DevicesConfig(static=CARDS),
    restart=RestartConfig(
        initial_ms=round(INITIAL_S * 1000), jitter=0, stable_ms=500, max_attempts=ATTEMPTS
    ),
)


class Pauses:
    """How long each was, from the word of a next attempt to its launch."""

    def __init__(self, home: Home) -> None:
        self.taken: list[float] = []
        self._began: float | None = None
        home.listeners.append(self._listen)

    def _listen(self, event: Event) -> None:
        if isinstance(event, Restarting):
            self._began = time.monotonic()
        if isinstance(event, Launching) and self._began is not None:
            self.taken.append(time.monotonic() - self._began)
            self._began = None

    def grow(self) -> None:
        """Twice as long each time; none ends early."""
        assert len(self.taken) == ATTEMPTS - 1
        for number, taken in enumerate(self.taken):
            pause = INITIAL_S * 2**number
            assert pause - 0.05 <= taken < pause * 2


async def gave_up(home: Home) -> GaveUp:
    told = await home.seen(GaveUp)
    with anyio.fail_after(5):
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=None)
    assert len(home.of(Spawned)) == ATTEMPTS
    assert [it.attempt for it in home.of(Restarting)] == [2, 3, 4]
    assert told.attempts == ATTEMPTS
    assert home.supervisor.get("x").failure == told.failure
    await home.nothing_left()
    return told


async def test_one_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    async with opened(tmp_path, config=CONFIG) as home:
        pauses = Pauses(home)
        binary = home.stub(load=60, exit_after=0.05, exit_code=2)
        await home.launch(binary=binary, wait=False, restart="on-failure", devices=(A,))
        failure = (await gave_up(home)).failure
        assert isinstance(failure, ExitedEarly)
        assert failure.exit_code == 2
        assert len(home.of(LaunchFailed)) == ATTEMPTS
        assert home.of(Ready) == []
        pauses.grow()
        await home.again(devices=(A,))


async def test_after_a_stable_period_the_pause_is_the_first_one_again(tmp_path: Path) -> None:
    async with opened(tmp_path, config=CONFIG) as home:
        pauses = Pauses(home)
        binary = home.stub(exit_after=1.0, exit_code=2)
        await home.launch(binary=binary, restart="on-failure", devices=(A,))
        await home.seen(Ready, times=ATTEMPTS + 1)
        assert len(home.of(Exited)) == len(home.of(Restarting)) == ATTEMPTS
        assert {it.attempt for it in home.of(Restarting)} == {2}
        assert len(pauses.taken) == ATTEMPTS
        assert all(INITIAL_S - 0.05 <= taken < INITIAL_S * 2 for taken in pauses.taken)
        assert home.of(GaveUp) == []
        await home.stop()


async def test_a_moment_of_readiness_is_no_recovery(tmp_path: Path) -> None:
    async with opened(tmp_path, config=CONFIG) as home:
        pauses = Pauses(home)
        binary = home.stub(exit_after=0.3, exit_code=2)
        await home.launch(binary=binary, restart="on-failure", devices=(A,))
        await gave_up(home)
        assert len(home.of(Ready)) == len(home.of(Exited)) == ATTEMPTS
        pauses.grow()
        await home.again(devices=(A,))
