"""The daemon's one task tree: rooms wired together, signals, and an orderly way out.

The socket is bound first, so that nobody else takes it, and answered last, when every record has
been taken up: whoever gets an answer gets a true one.
"""

import asyncio
import dataclasses
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import structlog
from msgspec import UNSET
from msgspec.structs import replace

from supervisor import __version__
from supervisor.bus import Bus, Published
from supervisor.clock import SystemClock, rfc3339
from supervisor.contracts.config import Config
from supervisor.contracts.event import Stamp, SupervisorStopping
from supervisor.contracts.host import SELF
from supervisor.contracts.paths import Paths
from supervisor.contracts.rpc import SupervisorInfo
from supervisor.daemon.activation import Activation
from supervisor.daemon.cgroup import own_cgroup_root
from supervisor.daemon.logs import LogSink
from supervisor.daemon.reload import Reloader
from supervisor.daemon.unit import Unit
from supervisor.daemon.watchdog import JournalLag
from supervisor.devices.apple import AppleProbe
from supervisor.devices.cpu import CpuProbe
from supervisor.devices.host import cpu_model
from supervisor.devices.inventory import Inventory
from supervisor.devices.prober import Prober
from supervisor.devices.roots import HOST, Roots
from supervisor.devices.static import StaticProbe
from supervisor.instances.durable import Step, no_step
from supervisor.instances.state_dir import supervisor_id
from supervisor.instances.store import RecordStore
from supervisor.journal import Deliver, Journal, prepare
from supervisor.launchers.docker import DockerLauncher, Presence, socket_path
from supervisor.launchers.process import Cgroups, ProcessLauncher
from supervisor.lifecycle.errors import NotDone
from supervisor.lifecycle.guard import keep_going
from supervisor.lifecycle.house import House
from supervisor.lifecycle.manager import LocalSupervisor
from supervisor.rpc.server import RpcServer
from supervisor.rpc.socket import listen

FAREWELL_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = structlog.get_logger(__name__)


async def run(
    config: Config,
    paths: Paths,
    activation: Activation,
    *,
    reread: Callable[[], Config] | None = None,
    log_sink: LogSink | None = None,
    at: Callable[[str], None] = no_step,
    step: Step = no_step,
    hardware: Path | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raises what keeps the daemon from serving at all.

    ``reread`` reads the configuration again, for a reload; without it there is nothing new in it.
    ``at`` and ``step`` are told of each step of a life and of a file, and ``hardware`` holds the
    kernel's files about another host; only a test has use for them.
    """
    clock = SystemClock()
    unit = Unit(activation)
    listener = unit.listener() or listen(paths.socket, int(config.access.socket_mode, 8))
    paths = dataclasses.replace(paths, socket=listener.path)
    state_dir = Path(paths.state_dir)
    tail = prepare(Path(paths.events), state_dir / "journal.json", clock.boot_id)
    bus = Bus(epoch=tail.epoch, last_seq=tail.last_seq, now=lambda: rfc3339(clock.wall()))
    bus.restore(tail.events)
    journal = Journal(Path(paths.events), _on_loop(bus), tail.promise)
    lag = JournalLag(bus)
    bus.attach(lag.watched(journal.record))
    cgroups = _cgroups(config, paths)
    inventory = _inventory(config, paths, clock, hardware)
    try:
        launcher = ProcessLauncher(boot_id=clock.boot_id, cgroups=cgroups, keeper=unit.fds)
        house = _furnish(config, paths, clock, bus, launcher, inventory, at, step)
        reloader = Reloader(house, journal, reread or (lambda: house.config))
        supervisor = LocalSupervisor(
            house, _describe(house, log_sink, journal, cgroups), reloader.reload
        )
        house.inventory.more_volumes = supervisor.model_paths
        # Open to the very end: a second signal must not cut the leaving short.
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(unit.beat)
                taken_up = await tasks.start(supervisor.serve)
                unit.fds.drop_unknown(view.record.nonce for view in supervisor.list())
                _settle_memory()
                async with RpcServer(supervisor, bus, listener, config.access) as reloader.server:
                    log.info(
                        "serving", socket=paths.socket, instances=taken_up, version=__version__
                    )
                    report = partial(unit.report, bus, lag, lambda: supervisor.info().counts)
                    tasks.start_soon(keep_going, house, "status", report)
                    tasks.start_soon(keep_going, house, "cgroups", cgroups.probe)
                    reason = await _until_told(signals, reloader, unit)
                    detached = supervisor.leave()
                    unit.stopping(detached)
                    farewell = bus.publish(SupervisorStopping(reason=reason, detached=detached))
                    log.info("leaving", reason=reason, engines_left_running=detached)
                    await _delivered(bus, farewell)
                tasks.cancel_scope.cancel()
    finally:
        inventory.close()
        listener.close()
        journal.close()
        cgroups.leave()


def _cgroups(config: Config, paths: Paths) -> Cgroups:
    if config.cgroups == "off":
        return Cgroups(None, "the configuration turns them off")
    return Cgroups(own_cgroup_root(supervisor_id(paths.state_dir)))


def _inventory(
    config: Config, paths: Paths, clock: SystemClock, hardware: Path | None
) -> Inventory:
    roots = HOST if hardware is None else Roots.under(hardware)
    probed = config.devices.probe == "auto"
    return Inventory(
        (StaticProbe(config.devices.static), AppleProbe(), CpuProbe(cpu_model())),
        (paths.state_dir, paths.log_dir, *(it.model_path for it in config.recipes.values())),
        monotonic_ns=clock.monotonic_ns,
        wall=clock.wall,
        stamp=rfc3339,
        prober=Prober(root=hardware) if probed else None,
        roots=roots,
        env=os.environ,
        containers=Presence(socket_path(config.docker, os.environ)).look,
    )


def _settle_memory() -> None:
    """Take what is there by now, and for good, out of the garbage collector's full rounds.

    One of those over all loaded modules was measured to hold the loop for 29 ms, so none is made
    here either: what little garbage the start left is kept with the rest.
    """
    gc.freeze()


def _on_loop(bus: Bus) -> Deliver:
    """The journal's thread hands written events back to the loop's, and does not wait for it."""
    loop = asyncio.get_running_loop()

    def deliver(events: tuple[Published, ...]) -> None:
        loop.call_soon_threadsafe(bus.deliver, events)

    return deliver


async def _delivered(bus: Bus, stamp: Stamp) -> None:
    """Give subscribers the chance to see an event before their connections end."""
    reader = bus.subscribe()
    with anyio.move_on_after(FAREWELL_S):
        while reader.cursor.seq < stamp.seq:
            await reader.next()


def _furnish(
    config: Config,
    paths: Paths,
    clock: SystemClock,
    bus: Bus,
    launcher: ProcessLauncher,
    inventory: Inventory,
    at: Callable[[str], None],
    step: Step,
) -> House:
    identity = supervisor_id(paths.state_dir, step)
    return House(
        clock=clock,
        bus=bus,
        store=RecordStore(paths.state_dir, tombstones=config.tombstones, step=step),
        launchers={
            "process": launcher,
            "docker": DockerLauncher(config.docker, identity, os.environ),
        },
        inventory=inventory,
        config=config,
        paths=paths,
        supervisor_id=identity,
        inherited_env=dict(os.environ),
        at=at,
    )


def _describe(
    house: House, log_sink: LogSink | None, journal: Journal, cgroups: Cgroups
) -> Callable[[dict[str, int]], SupervisorInfo]:
    """What of this daemon stays as it is; counts and healths are added for each answer."""
    paths = house.paths
    about = SupervisorInfo(
        version=__version__,
        node=SELF,
        boot_id=house.clock.boot_id,
        supervisor_id=house.supervisor_id,
        pid=os.getpid(),
        started_at=rfc3339(house.clock.wall()),
        counts={},
        paths={
            "socket": paths.socket,
            "stateDir": paths.state_dir,
            "logDir": paths.log_dir,
            "events": paths.events,
        },
    )

    def describe(counts: dict[str, int]) -> SupervisorInfo:
        own = log_sink.health if log_sink else UNSET
        return replace(
            about, counts=counts, log=own, journal=journal.health, cgroup_root=cgroups.place
        )

    return describe


async def _until_told(
    signals: AsyncIterator[signal.Signals], reloader: Reloader, unit: Unit
) -> str:
    async for number in signals:
        if number == signal.SIGHUP:
            with unit.reloading(), suppress(NotDone):  # it was told, in the events and the log
                await reloader.reload()
        else:
            return signal.Signals(number).name
    raise AssertionError("the signal stream does not end by itself")
