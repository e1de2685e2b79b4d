import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from supervisor.health.outcome import NotReady, Outcome, Ready
from supervisor.health.pacing import Pace
from supervisor.health.readiness import Expired, wait_ready
from tests.health.parts import (
    EVERY,
    OK,
    UNAVAILABLE,
    FdOwner,
    Server,
    check,
    child_server,
    free_port,
    probe_of,
    read_request,
    replies,
    silent,
    with_body,
)

pytestmark = pytest.mark.anyio

MS = 1_000_000
ROOT = Path(__file__).parents[2]
REFUSED = NotReady("refused", "nobody")


class Script:
    """A probe that answers by the script, and a clock that each probe moves on."""

    def __init__(self, *steps: tuple[int, Outcome]) -> None:
        self.steps = list(steps)
        self.now = 0
        self.asked: list[tuple[int, float | None]] = []

    def clock(self) -> int:
        return self.now

    async def readiness(self, within_s: float | None = None) -> Outcome:
        self.asked.append((self.now // MS, within_s))
        took_ms, outcome = self.steps[min(len(self.asked), len(self.steps)) - 1]
        self.now += took_ms * MS
        return outcome


async def wait(script: Script, deadline_ms: int = 100, **more: object) -> Ready | Expired:
    return await wait_ready(
        script,
        interval_ms=1,
        since_ns=0,
        deadline_ns=lambda: deadline_ms * MS,
        monotonic_ns=script.clock,
        pace=Pace(),
        **more,  # type: ignore[arg-type]
    )


async def test_the_first_success_ends_the_wait() -> None:
    script = Script((10, REFUSED), (10, NotReady("loading", "soon")), (1, Ready("yes")))
    assert await wait(script) == Ready("yes")
    assert len(script.asked) == 3


async def test_a_probe_ends_at_the_deadline_and_the_last_one_has_its_whole_time() -> None:
    script = Script((60, REFUSED), (40, NotReady("timeout", "cut")), (7, REFUSED))
    assert await wait(script) == Expired(REFUSED, 107)
    assert script.asked == [(0, 0.1), (60, 0.04), (100, None)]


async def test_a_daemon_that_slept_past_the_deadline_asks_once_more() -> None:
    """CLK-1."""
    script = Script((5_000, NotReady("timeout", "asleep")), (1, Ready("all along")))
    assert await wait(script) == Ready("all along")
    assert script.asked[-1] == (5_000, None)


async def test_a_deadline_that_has_passed_before_the_call_still_gets_one_probe() -> None:
    script = Script((1, REFUSED))
    script.now = 200 * MS
    assert await wait(script) == Expired(REFUSED, 201)
    assert len(script.asked) == 1


async def test_progress_moves_the_deadline_even_in_the_last_probe() -> None:
    script = Script((150, REFUSED), (10, REFUSED), (10, Ready("late")))
    verdict = await wait_ready(
        script,
        interval_ms=1,
        since_ns=0,
        deadline_ns=lambda: (100 if script.now <= 150 * MS else 1_000) * MS,
        monotonic_ns=script.clock,
        pace=Pace(),
    )
    assert verdict == Ready("late")


async def test_each_kind_of_miss_is_reported_once_and_at_once() -> None:
    foreign, denied = NotReady("foreign", "theirs"), NotReady("denied", "no rights")
    script = Script(
        (1, REFUSED), (1, foreign), (1, REFUSED), (1, foreign), (1, denied), (200, denied)
    )
    heard: list[tuple[str, int]] = []
    await wait(script, on_first=lambda miss: heard.append((miss.kind, len(script.asked))))
    assert heard == [("refused", 1), ("foreign", 2), ("denied", 5)]


async def test_a_cancelled_wait_is_just_over() -> None:
    with Server(replies(UNAVAILABLE)) as server:
        async with probe_of(server.port) as probe:
            with anyio.move_on_after(0.05) as scope:
                await _wait_for(probe, 10_000)
            assert scope.cancelled_caught


async def _wait_for(probe: object, deadline_ms: int) -> Ready | Expired:
    began = time.monotonic_ns()
    return await wait_ready(
        probe,  # type: ignore[arg-type]
        interval_ms=1_000,
        since_ns=began,
        deadline_ns=lambda: began + deadline_ms * MS,
        monotonic_ns=time.monotonic_ns,
        pace=Pace(),
    )


async def test_503_and_then_200() -> None:
    with child_server(OK, flip_after=0.2) as server:
        async with probe_of(server.port, owner=FdOwner(server.pid)) as probe:
            assert isinstance(await _wait_for(probe, 10_000), Ready)


async def test_a_loading_body_and_then_a_ready_one() -> None:
    began = time.monotonic()

    def handle(conn) -> None:  # type: ignore[no-untyped-def]
        while read_request(conn):
            ready = time.monotonic() - began > 0.2
            conn.sendall(with_body(b'{"status":"ok"}' if ready else b'{"status":"loading"}'))

    with Server(handle) as server:
        async with probe_of(server.port) as probe:
            assert isinstance(await _wait_for(probe, 10_000), Ready)
    assert time.monotonic() - began > 0.2


async def test_an_engine_that_listens_late() -> None:
    port = free_port()
    async with anyio.create_task_group() as tasks, probe_of(port) as probe:

        async def listen() -> None:
            await anyio.sleep(0.1)
            with Server(replies(OK), port=port):
                await found.wait()

        found = anyio.Event()
        tasks.start_soon(listen)
        assert isinstance(await _wait_for(probe, 10_000), Ready)
        found.set()


async def test_a_hung_engine_is_judged_within_the_deadline_and_one_timeout() -> None:
    for accepts in (EVERY, 0):
        with Server(silent, accepts=accepts) as server:
            async with probe_of(server.port, health=check(timeout_ms=100)) as probe:
                began = time.monotonic()
                verdict = await _wait_for(probe, 150)
                assert isinstance(verdict, Expired)
                assert verdict.last.kind == "timeout"
                assert time.monotonic() - began < 0.15 + 0.1 + 0.5


async def test_the_lag_between_the_first_200_and_ready_is_small() -> None:
    lags = [await lag_ms(2.0) for _ in range(2)]
    assert max(lags) < 100


async def lag_ms(load_s: float) -> float:
    """From the moment a server process turns ready to the end of the wait in this one."""
    with child_server(OK, flip_after=load_s) as server:
        async with probe_of(server.port, owner=FdOwner(server.pid)) as probe:
            assert isinstance(await _wait_for(probe, 10_000), Ready)
        return (time.monotonic_ns() - server.flipped_ns()) / MS


def test_a_supervisor_stopped_past_the_deadline_finds_an_engine_that_was_ready() -> None:
    with child_server(OK, flip_after=0.3) as server:
        numbers = map(str, (server.port, server.pid, 600))
        argv = [sys.executable, "-m", "tests.health.waiter", *numbers]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as waiter:
            assert waiter.stdout is not None
            assert waiter.stdout.readline() == "go\n"
            waiter.send_signal(signal.SIGSTOP)
            time.sleep(1)
            waiter.send_signal(signal.SIGCONT)
            assert waiter.communicate(timeout=20)[0] == "Ready\n"
