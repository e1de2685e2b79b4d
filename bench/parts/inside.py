"""The supervisor on the bench's own event loop, for what shows only from inside the process."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import structlog

from bench.parts.daemon import port_pool
from supervisor.bus import Bus, Published, Recorder
from supervisor.clock import SystemClock, rfc3339
from supervisor.contracts.config import Config, PortsConfig
from supervisor.contracts.host import SELF
from supervisor.contracts.paths import Paths
from supervisor.contracts.rpc import SupervisorInfo
from supervisor.daemon.cgroup import own_cgroup_root
from supervisor.daemon.watchdog import JournalLag
from supervisor.devices.cpu import CpuProbe
from supervisor.devices.host import cpu_model
from supervisor.devices.inventory import Inventory
from supervisor.devices.static import StaticProbe
from supervisor.instances.state_dir import lock_state_dir, supervisor_id
from supervisor.instances.store import RecordStore
from supervisor.journal import Journal, Promise, prepare
from supervisor.launchers.process import Cgroups, ProcessLauncher
from supervisor.launchers.process.keeper import NoKeeper
from supervisor.lifecycle.house import House
from supervisor.lifecycle.manager import LocalSupervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    supervisor: LocalSupervisor
    house: House

    @property
    def bus(self) -> Bus:
        return self.house.bus


@asynccontextmanager
async def inside(folder: Path) -> AsyncIterator[Inside]:
    """Wired as the daemon is, with a journal, on the records that ``folder`` may hold already.
    There is no service manager: no watchdog, and nobody who keeps pidfds over a restart.

    At the end it lets go of the engines, as a daemon does; the stage's sweep ends them.
    """
    paths = Paths(
        socket=str(folder / "s"), state_dir=str(folder / "state"), log_dir=str(folder / "log")
    )
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for place in (paths.state_dir, paths.log_dir):
        os.makedirs(place, mode=0o700, exist_ok=True)
    with lock_state_dir(paths.state_dir):
        house, journal, cgroups = furnish(paths)
        supervisor = LocalSupervisor(house, lambda counts: _about(house, counts))
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(supervisor.serve)
                with settled_memory():
                    yield Inside(supervisor=supervisor, house=house)
                supervisor.leave()
                tasks.cancel_scope.cancel()
        finally:
            journal.close()
            cgroups.leave()


@contextmanager
def settled_memory() -> Iterator[None]:
    """As the daemon keeps what is there for good out of the collector's full rounds."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def furnish(paths: Paths) -> tuple[House, Journal, Cgroups]:
    clock = SystemClock()
    tail = prepare(Path(paths.events), Path(paths.state_dir) / "journal.json", clock.boot_id)
    bus = Bus(epoch=tail.epoch, last_seq=tail.last_seq, now=lambda: rfc3339(clock.wall()))
    bus.restore(tail.events)
    lag = JournalLag(bus)
    journal = journal_of(bus, Path(paths.events), tail.promise, lag.watched)
    own_id = supervisor_id(paths.state_dir)
    cgroups = Cgroups(own_cgroup_root(own_id))
    first, last = port_pool()
    house = House(
        clock=clock,
        bus=bus,
        store=RecordStore(paths.state_dir),
        launchers={
            "process": ProcessLauncher(boot_id=clock.boot_id, cgroups=cgroups, keeper=NoKeeper())
        },
        inventory=Inventory(
            (StaticProbe(()), CpuProbe(cpu_model())),
            (paths.state_dir, paths.log_dir),
            monotonic_ns=clock.monotonic_ns,
            wall=clock.wall,
            stamp=rfc3339,
        ),
        config=Config(ports=PortsConfig(first=first, last=last)),
        paths=paths,
        supervisor_id=own_id,
        inherited_env=dict(os.environ),
    )
    return house, journal, cgroups


def journal_of(
    bus: Bus,
    path: Path,
    promise: Promise,
    watched: Callable[[Recorder], Recorder] = lambda record: record,
) -> Journal:
    """A journal at ``path`` that delivers to ``bus`` on the running loop, as the daemon's does."""
    loop = asyncio.get_running_loop()

    def deliver(events: tuple[Published, ...]) -> None:
        loop.call_soon_threadsafe(bus.deliver, events)

    journal = Journal(path, deliver, promise)
    bus.attach(watched(journal.record))
    return journal


def _about(house: House, counts: dict[str, int]) -> SupervisorInfo:
    return SupervisorInfo(
        version="bench",
        node=SELF,
        boot_id=house.clock.boot_id,
        supervisor_id=house.supervisor_id,
        pid=os.getpid(),
        started_at=rfc3339(house.clock.wall()),
        counts=counts,
        paths={},
    )
