"""The state machine: what can be done to a supervisor, and what must hold after each of it."""

import asyncio
import shutil
from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from supervisor.contracts.event import Exited, Launching, Restarting, TaskCrashed
from supervisor.contracts.event import Ready as ReadyEvent
from supervisor.contracts.instance import InstanceRecord, LaunchParams, ProcessHandle
from supervisor.launchers.base import Exit
from supervisor.lifecycle.errors import LifecycleError
from tests.chaos.journal import misreported
from tests.model.engines import NATURES, Nature
from tests.model.stage import CARDS, NAMES, RESTART, TOMBSTONES, Stage

FAR_S = 3_600.0

names = st.sampled_from(NAMES)


class Supervised(Stage):
    """Rules first, then what must hold after each of them."""

    # Rules

    @rule(
        name=names,
        restart=st.sampled_from(("never", "on-failure", "always")),
        devices=st.sampled_from((*CARDS, None)),
        nature=st.sampled_from(NATURES),
        deaf=st.booleans(),
        worker=st.booleans(),
        wait=st.booleans(),
    )
    def launch(
        self,
        name: str,
        restart: Any,
        devices: str | None,
        nature: Nature,
        deaf: bool,
        worker: bool,
        wait: bool,
    ) -> None:
        if name not in self._records():
            self.launcher.natures[name] = nature, deaf, worker
        wish: dict[str, Any] = {"devices": (devices,)} if devices else {"device_count": 1}
        params = LaunchParams(
            name=name,
            engine="llamacpp",
            model_path=str(self.folder / "model.gguf"),
            binary="/bin/true",
            restart=restart,
            ready_deadline_ms=30_000,
            wait=wait,
            **wish,
        )
        self._call(self.supervisor.launch(params))
        self._run(1.0 if wait else 0.001)

    @rule(name=names)
    def launch_a_good_one(self, name: str) -> None:
        self.launch(name, "on-failure", None, "steady", False, False, True)

    @rule(name=names, grace_ms=st.sampled_from((None, 0, 3_000)))
    def stop(self, name: str, grace_ms: int | None) -> None:
        record = self._records().get(name)
        stopping = self._call(self.supervisor.stop(name, nonce=None, grace_ms=grace_ms))
        if record is not None:
            stopping.add_done_callback(lambda done: self._stopped(record.nonce, done))
        self._run()

    def _stopped(self, nonce: str, done: asyncio.Task[object]) -> None:
        if not done.cancelled() and not isinstance(done.result(), LifecycleError):
            self.answered_stops.setdefault(nonce, len(self._of(nonce)))

    @rule(name=names)
    def cancel(self, name: str) -> None:
        self._call(self.supervisor.cancel(name, nonce=None, grace_ms=None))
        self._run()

    @rule(name=names)
    def restart(self, name: str) -> None:
        self._call(self.supervisor.restart(name, nonce=None, grace_ms=None))
        self._run()

    @precondition(lambda self: any(self._living()))
    @rule(data=st.data(), whole=st.booleans())
    def crash(self, data: st.DataObject, whole: bool) -> None:
        engine = data.draw(st.sampled_from(self._living()))
        engine.die(Exit(None, "SIGSEGV"), whole=whole)
        self._run()

    @rule(seconds=st.sampled_from((0.05, 0.5, 3.0, 10.0, 70.0)))
    def let_time_pass(self, seconds: float) -> None:
        self._run(seconds)

    @rule(hours=st.sampled_from((-30, -1, 1, 30)))
    def step_the_wall(self, hours: int) -> None:
        self.clock.step += timedelta(hours=hours)

    @rule(writes=st.integers(0, 3))
    def fill_the_disk(self, writes: int) -> None:
        """The next few writes fail; removals go on, as on a real full disk."""
        self.writes_that_fail = writes

    @rule(removals=st.integers(1, 3))
    def hold_on_to_files(self, removals: int) -> None:
        """The next few removals fail, as on a disk that was remounted read-only."""
        self.removals_that_fail = removals

    @rule()
    def restart_the_daemon(self) -> None:
        self.loop.run_until_complete(self._end())
        self.begin()

    # What must hold

    @invariant()
    def no_device_is_under_two_living_engines(self) -> None:
        under = Counter(device for engine in self._living() for device in engine.devices)
        assert all(count == 1 for count in under.values()), under

    @invariant()
    def no_engine_lives_without_its_record(self) -> None:
        known = {(it.nonce, it.ref.pid) for it in self._records().values() if _has_process(it)}
        for engine in self._living():
            assert (engine.nonce, engine.pid) in known, engine

    @invariant()
    def a_device_is_held_or_free(self) -> None:
        leases = self.loop.run_until_complete(self.supervisor.leases()).leases
        assert {it.device for it in leases} == {*CARDS, "cpu:0"}
        held = {it.device: [holder.name for holder in it.holders] for it in leases}
        claims = {view.record.name: view.record.devices for view in self.supervisor.list()}
        for device in CARDS:
            assert held[device] == [name for name, claim in claims.items() if device in claim]
            assert len(held[device]) <= 1

    @invariant()
    def states_tell_the_truth(self) -> None:
        for view in self.supervisor.list():
            ref = view.record.ref
            if not isinstance(ref, ProcessHandle):
                assert view.state == "reserving"
                continue
            engine = self.launcher.engines[ref.pid]
            assert engine.nonce == view.record.nonce
            if view.state == "ready":
                assert engine.was_ready
                assert engine.exit is None
            elif view.state == "starting":
                assert engine.exit is None
            elif view.state == "exited":  # and its record could not be removed yet
                assert not engine.lives
                assert view.record.name in self._records()
            else:
                assert view.state == "unhealthy"

    @invariant()
    def every_attempt_tells_its_outcome_once(self) -> None:
        living = {view.record.nonce for view in self.supervisor.list()}
        assert misreported(self.told, living) == []
        crashes = [it.event for it in self.events if isinstance(it.event, TaskCrashed)]
        assert crashes == []

    @invariant()
    def a_stop_wins(self) -> None:
        for nonce, engines in self.answered_stops.items():
            assert len(self._of(nonce)) == engines
            assert not any(engine.lives for engine in self._of(nonce))

    @invariant()
    def tombstones_are_bounded(self) -> None:
        assert len([*(self.folder / "tombstones").glob("*.json")]) <= TOMBSTONES
        ended = [it for it in self.supervisor.list(ended=True) if it.state == "exited"]
        assert len(ended) <= TOMBSTONES

    @invariant()
    def attempts_are_counted_until_a_stable_period(self) -> None:
        counts: dict[str, int] = {}
        ready: dict[str, float] = {}
        lasted: dict[str, float] = {}
        launched: set[str] = set()
        for published, moment in zip(self.events, self.moments, strict=True):
            event, nonce = published.event, published.event.nonce
            if not nonce:
                continue
            if isinstance(event, Launching):
                launched.add(nonce)
            elif isinstance(event, ReadyEvent):
                ready[nonce] = moment
            elif isinstance(event, Exited) and nonce in ready:
                lasted[nonce] = moment - ready.pop(nonce)
            elif isinstance(event, Restarting):
                before = counts.get(nonce, 1)
                said_again = event.attempt == before and nonce not in launched
                launched.discard(nonce)
                if event.reason == "requested":
                    assert event.attempt == 1
                elif event.attempt != before + 1 and not said_again:
                    story = [it.event for it in self.events if it.event.nonce == nonce]
                    assert event.attempt == 2, story
                    assert lasted.get(nonce, 0) >= RESTART.stable_ms / 1_000 - 1, story
                assert event.attempt <= RESTART.max_attempts
                counts[nonce] = event.attempt
                ready.pop(nonce, None)
                lasted.pop(nonce, None)

    def teardown(self) -> None:
        """With space on the disk and time enough, everything can be ended, and nothing is left."""
        try:
            if hasattr(self, "serving"):
                self.writes_that_fail = self.removals_that_fail = 0
                draining = self._call(self.supervisor.drain(grace_ms=None))
                self._run(FAR_S)
                assert draining.done(), "the drain does not end"
                assert self.calls == set(), "a client still waits"
                assert self.supervisor.list() == ()
                assert self._records() == {}
                assert self._living() == []
                self.loop.run_until_complete(self._end())
        finally:
            self.stack.close()
            shutil.rmtree(self.folder)


def _has_process(record: InstanceRecord) -> bool:
    return isinstance(record.ref, ProcessHandle)
