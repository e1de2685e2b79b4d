"""Signs of life: given by a loop that turns, withheld when something ails, and told in words."""

import threading
import time

import anyio
import pytest
from structlog.testing import capture_logs

from supervisor.bus import Bus, Published
from supervisor.contracts.event import Warning_
from supervisor.daemon.unit import describe
from supervisor.daemon.watchdog import STALL_S, JournalLag, beat, missing_thread

INTERVAL_S = 0.2


class Beats:
    def __init__(self) -> None:
        self.at: list[float] = []
        self.ails: str | None = None

    def send(self, line: str) -> None:
        assert line == "WATCHDOG=1"
        self.at.append(time.monotonic())

    async def run(self) -> None:
        await beat(self.send, INTERVAL_S, lambda: self.ails)


@pytest.mark.anyio
async def test_a_loop_that_is_blocked_does_not_beat() -> None:
    beats = Beats()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beats.run)
        await anyio.sleep(INTERVAL_S)
        began = time.monotonic()
        time.sleep(3 * INTERVAL_S)  # noqa: ASYNC251 - that is what is tried
        ended = time.monotonic()
        await anyio.sleep(INTERVAL_S)
        tasks.cancel_scope.cancel()
    assert [at for at in beats.at if at < began]
    assert not [at for at in beats.at if began < at < ended]
    assert [at for at in beats.at if at > ended]


@pytest.mark.anyio
async def test_an_ailment_ends_the_beats_and_is_told_once() -> None:
    beats = Beats()
    with capture_logs() as logged:
        async with anyio.create_task_group() as tasks:
            beats.ails = "something is gone"
            tasks.start_soon(beats.run)
            await anyio.sleep(2 * INTERVAL_S)
            assert not beats.at
            beats.ails = None
            await anyio.sleep(INTERVAL_S)
            tasks.cancel_scope.cancel()
    assert beats.at
    assert [entry["reason"] for entry in logged] == ["something is gone"]


def test_a_thread_that_is_gone_is_an_ailment() -> None:
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait, name="a-thread-of-this-test")
    thread.start()
    assert missing_thread(thread.name) is None
    leave.set()
    thread.join()
    assert missing_thread(thread.name) == "the thread 'a-thread-of-this-test' is gone"


def test_the_journals_lag_counts_from_the_first_event_that_it_owes() -> None:
    clock = 100.0
    waiting: list[Published] = []
    bus = Bus(epoch="e", last_seq=7, now=lambda: "2026-01-01T00:00:00Z")
    lag = JournalLag(bus, lambda: clock)
    bus.attach(lag.watched(waiting.append))

    def publish() -> None:
        bus.publish(Warning_(code="record-newer", detail="any event would do"))

    with capture_logs() as logged:
        clock += 1000
        publish()
        assert lag.seconds() == 0
        clock += STALL_S - 1
        publish()
        assert lag.seconds() == STALL_S - 1
        assert not logged
        clock += 2
        assert lag.seconds() == STALL_S + 1
        assert lag.seconds() == STALL_S + 1
        bus.deliver((waiting.pop(0),))
        assert lag.seconds() == 0, "it is slow, but it moves"
        clock += 1
        bus.deliver((waiting.pop(0),))
        clock += 1000
        assert lag.seconds() == 0, "it owes nothing"
    assert [(entry["log_level"], entry.get("waiting")) for entry in logged] == [
        ("warning", 2),
        ("info", None),
    ]


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, "0 instances"),
        ({"ready": 1}, "1 instance: 1 ready"),
        ({"starting": 1, "ready": 2}, "3 instances: 2 ready, 1 starting"),
    ],
)
def test_the_status_counts_instances_by_state(counts: dict[str, int], text: str) -> None:
    assert describe(counts, 0) == text
    assert describe(counts, STALL_S) == f"{text}; the journal does not get on"
