"""What the state machine plays on: one supervisor after another, over one disk and one clock."""

import asyncio
import errno
import os
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize

from supervisor.bus import Bus, Published
from supervisor.clock import rfc3339
from supervisor.contracts.config import Config, DevicesConfig, RestartConfig, StaticDevice
from supervisor.contracts.instance import InstanceRecord
from supervisor.contracts.paths import Paths
from supervisor.devices.cpu import CpuProbe
from supervisor.devices.inventory import Inventory
from supervisor.devices.static import StaticProbe
from supervisor.instances.store import RecordStore
from supervisor.lifecycle import asking
from supervisor.lifecycle.errors import LifecycleError
from supervisor.lifecycle.house import House
from supervisor.lifecycle.manager import LocalSupervisor
from tests.chaos.journal import Line
from tests.lifecycle.house import POOL, info
from tests.model.engines import Engine, ThoughtLauncher, ThoughtProbe
from tests.model.timeless import TimelessClock, timeless

NAMES = ("a", "b", "c")
CARDS = ("GPU-1", "GPU-2")
TOMBSTONES = 2
RESTART = RestartConfig(
    initial_ms=1_000, max_ms=8_000, stable_ms=60_000, max_attempts=4, breaker_failures=3
)


class Stage(RuleBasedStateMachine):
    """Time stands still between two rules, unless a rule lets it pass."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.loop = self.stack.enter_context(timeless())
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(asking, "Probe", ThoughtProbe)
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="model-", dir=shm))
        (self.folder / "model.gguf").touch()
        self.clock = TimelessClock(self.loop)
        self.launcher = ThoughtLauncher()
        self.writes_that_fail = 0
        self.removals_that_fail = 0
        self.events: list[Published] = []
        self.told: list[Line] = []
        self.moments: list[float] = []
        """When each was published, by the clock that nobody steps."""
        self.calls: set[asyncio.Task[object]] = set()
        self.answered_stops: dict[str, int] = {}
        """Of launches that were stopped for good: how many engines they had had by then."""
        self.last_seq = 0

    # The supervisor's life

    @initialize()
    def begin(self) -> None:
        self.loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        config = Config(
            ports=POOL,
            restart=RESTART,
            tombstones=TOMBSTONES,
            devices=DevicesConfig(
                static=tuple(StaticDevice(id=card, accelerator="cuda") for card in CARDS)
            ),
        )
        bus = Bus(epoch="e", last_seq=self.last_seq, now=lambda: rfc3339(self.clock.wall()))
        bus.restore(tuple(self.events))

        def record(published: Published) -> None:
            self.events.append(published)
            self.moments.append(self.loop.time())
            self.told.append(msgspec.json.decode(published.encoded, type=Line))
            self.last_seq = published.stamp.seq
            bus.deliver((published,))

        bus.attach(record)
        house = House(
            clock=self.clock,
            bus=bus,
            store=RecordStore(self.folder, tombstones=TOMBSTONES, step=self._step),
            launchers={"process": self.launcher},
            inventory=Inventory(
                (StaticProbe(config.devices.static), CpuProbe("a processor")),
                (),
                monotonic_ns=self.clock.monotonic_ns,
                wall=self.clock.wall,
                stamp=rfc3339,
            ),
            config=config,
            paths=Paths(
                socket="none", state_dir=str(self.folder), log_dir=str(self.folder / "log")
            ),
            supervisor_id="5e1f5e1f5e1f5e1f",
            inherited_env={"PATH": "/usr/bin:/bin"},
        )
        self.supervisor = LocalSupervisor(house, info)
        begun = asyncio.Event()
        self.serving = asyncio.ensure_future(self._serve(begun))
        await begun.wait()
        await self._settle()

    async def _serve(self, begun: asyncio.Event) -> None:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.supervisor.serve)
            begun.set()

    async def _end(self) -> None:
        self.serving.cancel()
        with suppress(asyncio.CancelledError):
            await self.serving
        for call in self.calls:
            call.cancel()
        await asyncio.gather(*self.calls, return_exceptions=True)
        self.calls.clear()

    def _step(self, step: str) -> None:
        if self.removals_that_fail and step == "unlink":
            self.removals_that_fail -= 1
            raise OSError(errno.EROFS, "Read-only file system")
        if self.writes_that_fail and step == "write":
            self.writes_that_fail -= 1
            raise OSError(errno.ENOSPC, "No space left on device")

    async def _settle(self) -> None:
        """All that can happen at this moment has happened."""
        await asyncio.sleep(0.001)

    # What rules are made of

    def _call(self, call: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """As a client that may have to wait for its answer, and may get a refusal."""

        async def answered() -> object:
            try:
                return await call
            except LifecycleError as error:
                return error

        task = self.loop.create_task(answered())
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        return task

    def _run(self, seconds: float = 0.001) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    # Looks

    def _living(self) -> list[Engine]:
        return [engine for engine in self.launcher.engines.values() if engine.lives]

    def _of(self, nonce: str) -> list[Engine]:
        return [it for it in self.launcher.engines.values() if it.nonce == nonce and it.born]

    def _records(self) -> dict[str, Any]:
        paths = sorted((self.folder / "instances").glob("*.json"))
        return {it.stem: msgspec.json.decode(it.read_bytes(), type=InstanceRecord) for it in paths}
