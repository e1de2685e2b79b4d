"""The same promises with real daemons and real engines, in fewer steps."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from supervisor.client import ClientError
from supervisor.contracts.rpc import DrainParams, StopParams
from tests.chaos import journal
from tests.chaos.book import Entry, kill
from tests.chaos.nursery import Nursery
from tests.chaos.world import CARDS, RESTART, World

NAMES = st.sampled_from(("a", "b", "c"))
GRACE_MS = 100
KNOBS: tuple[dict[str, float | str], ...] = (
    {},
    {"children": "session,detached+deaf"},
    {"load": 0.3},
    {"exit_after": 0.05, "exit_code": 3},
    {"exit_after": 0.4, "children": "detached"},
)


class Real(RuleBasedStateMachine):
    """Each rule is one call of a client, or one blow to an engine or to the daemon."""

    nursery: Nursery

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="model-"))
        self.world = World(Path(folder), self.nursery, CARDS[:2], RESTART)
        self.stack.callback(self.world.clear)
        self.world.start()
        self.stopped: set[str] = set()

    @rule(
        name=NAMES,
        knobs=st.sampled_from(KNOBS),
        restart=st.sampled_from(("never", "on-failure")),
        count=st.sampled_from((1, 1, 2)),
    )
    def launch(self, name: str, knobs: dict[str, Any], restart: str, count: int) -> None:
        with suppress(ClientError), self.world.client() as client:
            binary = self.world.binary(**knobs)
            client.launch(
                self.world.params(
                    name, binary=binary, restart=restart, device_count=count, wait=False
                )
            )

    @rule(name=NAMES)
    def stop(self, name: str) -> None:
        record = self.world.records().get(name)
        with suppress(ClientError), self.world.client() as client:
            nonce = record.nonce if record else "0" * 32
            client.stop(StopParams(name=name, nonce=nonce, grace_ms=GRACE_MS))
            self.stopped.add(nonce)

    @rule(name=NAMES)
    def restart(self, name: str) -> None:
        if name in self.world.records():
            with suppress(ClientError), self.world.client() as client:
                client.restart(StopParams(name=name, grace_ms=GRACE_MS))

    @precondition(lambda self: self._mains())
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        kill(data.draw(st.sampled_from(self._mains())))

    @rule(seconds=st.sampled_from((0.0, 0.02, 0.3)))
    def kill_the_daemon(self, seconds: float) -> None:
        time.sleep(seconds)
        self.world.kill()
        self.world.start()

    @invariant()
    def nothing_is_lost_and_nothing_leaks(self) -> None:
        assert self.world.settle() == []
        assert [it for it in self.world.book.read() if it.what == "clash"] == []

    @invariant()
    def a_stop_wins(self) -> None:
        assert [it for it in self.world.book.living() if it.nonce in self.stopped] == []

    def teardown(self) -> None:
        with self.stack:
            with self.world.client() as client:
                client.drain(DrainParams(grace_ms=GRACE_MS))
            assert self.world.settle() == []
            assert self.world.book.living() == []
            assert self.world.records() == {}
            told = journal.lines(self.world.log_dir / "events.jsonl")
            assert journal.gaps(told) + journal.misreported(told, ()) == []

    def _mains(self) -> list[Entry]:
        return [entry for entry in self.world.book.mains() if entry.lives]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


def test_real_processes(nursery: Nursery) -> None:
    Real.nursery = nursery
    run_state_machine_as_test(
        Real,
        settings=settings(
            max_examples=6,
            stateful_step_count=10,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
