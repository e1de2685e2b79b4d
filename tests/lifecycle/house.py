"""A whole supervisor without a daemon around it: real records, real processes, real ports.

`Home` is what a test talks to. It keeps every event as it is published, so that a test can say
what must have been told and what must not, and it knows every nonce it gave out, so that at the
end nothing of any launch can hide.
"""

import fcntl
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeVar

import anyio
import anyio.abc
import msgspec
import pytest

from supervisor.bus import Bus, Published
from supervisor.clock import Clock, SystemClock, rfc3339
from supervisor.contracts.config import Config, DevicesConfig, PortsConfig, StaticDevice
from supervisor.contracts.engine import EngineRuntimeKind
from supervisor.contracts.event import Event, LaunchFailed
from supervisor.contracts.failure import LaunchFailure
from supervisor.contracts.instance import (
    InstanceRecord,
    InstanceView,
    LaunchParams,
    ProcessHandle,
)
from supervisor.contracts.paths import Paths
from supervisor.contracts.rpc import SupervisorInfo
from supervisor.devices.cpu import CpuProbe
from supervisor.devices.inventory import Inventory, no_containers
from supervisor.devices.probe import Probe
from supervisor.devices.static import StaticProbe
from supervisor.failures import to_rpc
from supervisor.instances.durable import Step, no_step
from supervisor.instances.store import RecordStore
from supervisor.launchers.base import Launcher
from supervisor.launchers.docker import DockerLauncher, Presence, socket_path
from supervisor.launchers.process import ProcessLauncher
from supervisor.lifecycle import attempt, down, readying, up
from supervisor.lifecycle.errors import LaunchRefused
from supervisor.lifecycle.house import House
from supervisor.lifecycle.manager import LocalSupervisor
from tests.parts.stub import stub_binary

A, B = "GPU-aaaaaaaa-0000-4000-8000-000000000001", "GPU-bbbbbbbb-0000-4000-8000-000000000002"
CARDS = (
    StaticDevice(id=A, accelerator="cuda", memory_bytes=24 << 30),
    StaticDevice(id=B, accelerator="cuda", memory_bytes=24 << 30),
)
"""Two cards that nobody has: leased like any other, and alone by default."""

SUPERVISOR_ID = "5e1f5e1f5e1f5e1f"
SOON = 15.0
"""Far beyond what anything here takes on the slowest machine, and short enough to wait for."""


def _own_block() -> int:
    """A hundred ports for this test process, so that runs side by side take none of each other's.

    Below the kernel's ephemeral range and outside the default pool. The lock ends with the process.
    """
    for first in range(12_000, 20_000, 100):
        path = f"{gettempdir()}/engine-supervisor-test-ports-{os.getuid()}-{first}"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return first
        except BlockingIOError:
            os.close(lock)
    raise RuntimeError("too many test runs at once")


_BLOCK = _own_block()  # in it the pool comes first, then the explicit ports
POOL = PortsConfig(first=_BLOCK, last=_BLOCK + 59)
_EXPLICIT = count()


def pool() -> PortsConfig:
    """For a daemon of its own: the half of the pool that no supervisor in here gives out."""
    return PortsConfig(first=POOL.first + 45, last=POOL.last)


T = TypeVar("T", bound=Event)


def free_port() -> int:
    """A port outside the pool that nobody listens on, and that no test here got lately."""
    while True:
        port = _BLOCK + 60 + next(_EXPLICIT) % 40
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


class Steps:
    """The named steps of a life, at which a test can do something, once."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.then: dict[str, Callable[[], None]] = {}

    def __call__(self, step: str) -> None:
        self.taken.append(step)
        if act := self.then.pop(step, None):
            act()


@dataclass
class BentClock:
    """The machine's clock, with a wall that a test can step."""

    real: Clock = field(default_factory=SystemClock)
    step: timedelta = timedelta()

    def bend(self, hours: float) -> None:
        self.step += timedelta(hours=hours)

    @property
    def boot_id(self) -> str:
        return self.real.boot_id

    def monotonic_ns(self) -> int:
        return self.real.monotonic_ns()

    def wall(self) -> datetime:
        return self.real.wall() + self.step


class Home:
    """One supervisor and everything that can be known about what it did."""

    def __init__(self, folder: Path, house: House, supervisor: LocalSupervisor) -> None:
        self.folder = folder
        self.house = house
        self.supervisor = supervisor
        self.events: list[Published] = []
        self.listeners: list[Callable[[Event], None]] = []
        self.nonces: set[str] = set()
        self.tasks: anyio.abc.TaskGroup
        self.steps = Steps()
        """Of the one who opened the house; they are taken only where he passed them in."""
        self._news = anyio.Event()
        house.bus.attach(self._record)

    def _record(self, published: Published) -> None:
        self.events.append(published)
        if published.event.nonce:
            self.nonces.add(published.event.nonce)
        for listener in self.listeners:
            listener(published.event)
        self.house.bus.deliver((published,))
        self._news.set()
        self._news = anyio.Event()

    def start(self, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Make a call in the background; it ends when the supervisor leaves."""
        self.tasks.start_soon(call)

    def detach(self) -> None:
        """Leave everything as it is, at once, as at the end of the daemon."""
        self.tasks.cancel_scope.cancel()

    # Launching

    def stub(self, name: str = "llama-server", **knobs: str | float) -> str:
        """The stub engine with these knobs, in a folder of its own: nothing of it is on PATH."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        return stub_binary(folder, f"{name}-{len(list(folder.iterdir()))}", **knobs)

    @property
    def model(self) -> str:
        path = self.folder / "model.gguf"
        path.touch()
        return str(path)

    def params(self, name: str, **members: Any) -> LaunchParams:
        """Of a launch on the shared CPU, of the plain stub, unless ``members`` say otherwise."""
        if "binary" not in members and "command" not in members:
            members["binary"] = self.stub()
        usual: dict[str, Any] = {"engine": "llamacpp", "model_path": self.model}
        if not {"devices", "device_count"} & members.keys():
            usual["devices"] = ("cpu:0",)
        return LaunchParams(name=name, **usual | members)

    async def launch(self, name: str = "x", /, **members: Any) -> InstanceView:
        with anyio.fail_after(SOON * 2):
            return await self.supervisor.launch(self.params(name, **members))

    async def refused(
        self, name: str = "x", *, crashes: bool = False, **members: Any
    ) -> LaunchFailure:
        """Launch, expect a failure, and hold it to the promises that hold for every failure."""
        before = len(self.events)
        with pytest.raises(LaunchRefused) as caught:
            await self.launch(name, **members)
        self.told_once(caught.value.failure, name, before, crashes=crashes)
        return caught.value.failure

    def told_once(
        self, failure: LaunchFailure, name: str = "x", since: int = 0, *, crashes: bool = False
    ) -> LaunchFailed:
        """One ``launch-failed`` equal to the reply, a nonce of its own, no word of a stop."""
        told = [it for it in self.events[since:] if it.event.instance == name]
        failed = [it.event for it in told if isinstance(it.event, LaunchFailed)]
        assert [it.failure for it in failed] == [failure]
        wire = msgspec.json.decode(msgspec.json.encode(failed[0]))["failure"]
        assert wire == msgspec.json.decode(to_rpc(failure).data or b"")
        nonce = failed[0].nonce
        assert nonce
        assert not [
            it
            for it in self.events[:since]
            if it.event.instance == name and it.event.nonce == nonce
        ]
        kinds = {kind_of(it.event) for it in told if it.event.nonce == nonce}
        assert not kinds & {"ready", "stopping", "stopped", "exited"}
        assert ("task-crashed" in kinds) == crashes
        return failed[0]

    async def stop(self, name: str = "x", grace_ms: int | None = None) -> InstanceView:
        with anyio.fail_after(SOON * 2):
            return await self.supervisor.stop(name, nonce=None, grace_ms=grace_ms)

    async def cancel(self, name: str = "x", nonce: str | None = None) -> InstanceView:
        with anyio.fail_after(SOON * 2):
            return await self.supervisor.cancel(name, nonce=nonce, grace_ms=None)

    # Events

    def of(self, kind: type[T], name: str | None = None) -> list[T]:
        """All events of a kind so far, of one instance or of all."""
        return [
            it.event
            for it in self.events
            if isinstance(it.event, kind) and name in (None, it.event.instance)
        ]

    def story(self, name: str = "x", nonce: str | None = None) -> list[str]:
        """The kinds of an instance's events, in order."""
        return [
            kind_of(it.event)
            for it in self.events
            if it.event.instance == name and nonce in (None, it.event.nonce)
        ]

    async def seen(self, kind: type[T], name: str | None = None, times: int = 1) -> T:
        """Wait for the ``times``-th event of a kind and return it."""
        with anyio.fail_after(SOON):
            while len(found := self.of(kind, name)) < times:
                await self._news.wait()
        return found[times - 1]

    # What is left

    @property
    def state_dir(self) -> Path:
        return Path(self.house.paths.state_dir)

    async def again(self, name: str = "x", **members: Any) -> None:
        """A failed launch left nothing: the same name, device and port serve the next one."""
        await self.nothing_left()
        view = await self.launch(name, **members)
        assert view.state == "ready"
        assert (await self.stop(name)).state == "exited"
        await self.nothing_left()

    def record_on_disk(self, name: str = "x") -> InstanceRecord:
        path = self.state_dir / "instances" / f"{name}.json"
        return msgspec.json.decode(path.read_bytes(), type=InstanceRecord)

    async def holders(self) -> dict[str, list[str]]:
        """Names of holders by device, of the devices that have any."""
        leases = (await self.supervisor.leases()).leases
        return {it.device: [one.name for one in it.holders] for it in leases if it.holders}

    async def nothing_left(self) -> None:
        """No instance, process, record, temporary file or lease of any launch so far."""
        assert self.supervisor.list() == ()
        assert await self.holders() == {}
        assert sorted(it.name for it in (self.state_dir / "instances").iterdir()) == []
        assert [it.name for it in self.state_dir.rglob("*.tmp")] == []
        assert list(bearers(self.nonces)) == []


def kind_of(event: Event) -> str:
    return str(type(event).__struct_config__.tag)


async def until(fact: Callable[[], bool]) -> None:
    """Wait for what no event tells."""
    with anyio.fail_after(SOON):
        while not fact():  # noqa: ASYNC110
            await anyio.sleep(0.01)


def pid_of(view: InstanceView) -> int:
    assert isinstance(view.record.ref, ProcessHandle)
    return view.record.ref.pid


def bearers(nonces: set[str]) -> Iterator[int]:
    """Living processes that say that one of these launches started them."""
    wanted = {f"ENGINE_SUPERVISOR_NONCE={nonce}".encode() for nonce in nonces}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError):
                if wanted & set(Path("/proc", entry, "environ").read_bytes().split(b"\0")):
                    yield int(entry)


def kill_leftovers(nonces: set[str]) -> None:
    """After a test that failed: what it started must not disturb the next one."""
    for pid in bearers(nonces):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def info(counts: dict[str, int]) -> SupervisorInfo:
    return SupervisorInfo(
        version="0",
        node="self",
        boot_id="",
        supervisor_id="5e1f",
        pid=os.getpid(),
        started_at="",
        counts=counts,
        paths={},
    )


@asynccontextmanager
async def opened(
    folder: Path,
    *,
    at: Callable[[str], None] = lambda step: None,
    store_step: Step = no_step,
    clock: Clock | None = None,
    launcher: Launcher | None = None,
    inherited_env: Mapping[str, str] | None = None,
    config: Config | None = None,
    probes: Sequence[Probe] | None = None,
    tombstones: int = 200,
    clean: bool = True,
    guard: Callable[[], AbstractContextManager[object]] = nullcontext,
    containers: bool = False,
    others: Mapping[EngineRuntimeKind, Launcher] | None = None,
) -> AsyncIterator[Home]:
    """Furnish a house in ``folder``, let its supervisor serve under ``guard``, and detach.

    With ``clean`` nothing may be left by then; without it engines run on, as they do when a
    daemon leaves. With ``containers`` it has what the config says of a container engine.
    """
    clock = clock or SystemClock()
    config = config or Config(
        ports=POOL, devices=DevicesConfig(static=CARDS), tombstones=tombstones
    )
    paths = Paths(
        socket=f"{folder}/none.sock", state_dir=f"{folder}/state", log_dir=f"{folder}/log"
    )
    launchers: dict[EngineRuntimeKind, Launcher] = {
        "process": launcher or ProcessLauncher(boot_id=clock.boot_id)
    }
    launchers |= others or {}
    env = os.environ if inherited_env is None else inherited_env
    if containers:
        launchers["docker"] = DockerLauncher(config.docker, SUPERVISOR_ID, env)
    presence = Presence(socket_path(config.docker, env))
    house = House(
        clock=clock,
        bus=Bus(epoch="test", last_seq=0, now=lambda: rfc3339(clock.wall())),
        store=RecordStore(paths.state_dir, tombstones=config.tombstones, step=store_step),
        launchers=launchers,
        inventory=Inventory(
            probes or (StaticProbe(config.devices.static), CpuProbe("a processor")),
            (),
            monotonic_ns=clock.monotonic_ns,
            wall=clock.wall,
            stamp=rfc3339,
            containers=presence.look if containers else no_containers,
        ),
        config=config,
        paths=paths,
        supervisor_id=SUPERVISOR_ID,
        inherited_env=env,
        at=at,
    )
    home = Home(folder, house, LocalSupervisor(house, info))
    try:
        with guard():
            async with anyio.create_task_group() as tasks:
                home.tasks = tasks
                await tasks.start(home.supervisor.serve)
                yield home
                if clean:
                    await home.nothing_left()
                tasks.cancel_scope.cancel()
    finally:
        if clean:
            kill_leftovers(home.nonces)


def tune(monkeypatch: pytest.MonkeyPatch, **values: float) -> None:
    """Set constants of the lifecycle (``RELAXED_S=0.05``) in every module that reads them."""
    for name, value in values.items():
        for module in (attempt, down, readying, up):
            monkeypatch.setattr(module, name, value, raising=False)
