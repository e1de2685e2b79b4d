"""The wall clock is stepped by hours, under a supervisor and between two of them (CLK-1).

A time namespace cannot shift ``CLOCK_REALTIME``, so it is the injected clock that is stepped.
"""

import time
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.config import Config, DevicesConfig, RestartConfig
from supervisor.contracts.event import LaunchFailed, Ready, Restarting, Spawned
from supervisor.contracts.failure import UnhealthyTimeout
from tests.lifecycle.house import CARDS, POOL, A, BentClock, opened

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("hours", [-5, 5])]

LONG_S = 10.0
"""Far beyond what anything here is to take, and far from hours."""


async def test_a_launch_is_neither_hurried_nor_delayed(tmp_path: Path, hours: int) -> None:
    """It becomes ready when it is, with steps in between and one over the restart."""
    clock = BentClock()
    async with opened(tmp_path, clock=clock, clean=False) as home:
        binary = home.stub(load=1.0)
        await home.launch(binary=binary, wait=False, ready_deadline_ms=8_000, devices=(A,))
        await home.seen(Spawned)
        clock.bend(hours)
        await anyio.sleep(0.2)
        clock.bend(-2 * hours)
    clock.bend(5 * hours)
    async with opened(tmp_path, clock=clock) as home:
        ready = await home.seen(Ready)
        assert 900 <= ready.waited_ms <= LONG_S * 1_000
        assert home.of(LaunchFailed) == []
        await home.stop()


async def test_a_deadline_is_where_it_was(tmp_path: Path, hours: int) -> None:
    clock = BentClock()
    async with opened(tmp_path, clock=clock, clean=False) as home:
        binary = home.stub(load=60)
        await home.launch(binary=binary, wait=False, ready_deadline_ms=1_000, devices=(A,))
        await home.seen(Spawned)
        clock.bend(hours)
    clock.bend(hours)
    async with opened(tmp_path, clock=clock) as home:
        failed = await home.seen(LaunchFailed)
        assert isinstance(failed.failure, UnhealthyTimeout)
        assert 1_000 <= failed.failure.waited_ms <= LONG_S * 1_000
        await home.supervisor.wait("x", nonce=None, until="exited", timeout_ms=10_000)


async def test_a_pause_is_as_long_as_it_was(tmp_path: Path, hours: int) -> None:
    """The back-off goes on under the next supervisor, and ends when it was to end."""
    clock = BentClock()
    restart = RestartConfig(initial_ms=700, max_ms=700, jitter=0)
    config = Config(ports=POOL, devices=DevicesConfig(static=CARDS), restart=restart)
    async with opened(tmp_path, clock=clock, config=config, clean=False) as home:
        binary = home.stub(exit_after=0.01, exit_code=3)
        await home.launch(binary=binary, wait=False, restart="on-failure", devices=(A,))
        await home.seen(Restarting)
        began = time.monotonic()
        clock.bend(hours)
    clock.bend(hours)
    async with opened(tmp_path, clock=clock, config=config) as home:
        await home.seen(Spawned)
        assert 0.6 <= time.monotonic() - began <= LONG_S
        await home.stop()
