"""A supervisor in memory, with the interface of the real one, and a way to serve it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from supervisor.bus import Bus
from supervisor.contracts.config import AccessConfig
from supervisor.contracts.device import (
    AcceleratorInfo,
    DeviceLease,
    DeviceLeases,
    DeviceProcess,
    DeviceSnapshot,
    HostInfo,
    LeaseHolder,
    Withholding,
)
from supervisor.contracts.engine import EngineSupport, HealthCheck, LaunchPlan
from supervisor.contracts.event import Event, Phase, Ready, Reserved, Stopped
from supervisor.contracts.failure import AlreadyRunning, Cancelled, LaunchFailure
from supervisor.contracts.host import HostProfile
from supervisor.contracts.instance import (
    HealthView,
    InstanceRecord,
    InstanceState,
    InstanceView,
    LaunchParams,
    PinnedHandle,
    ProcessHandle,
)
from supervisor.contracts.rpc import (
    CanonicalMetrics,
    DetectedEngine,
    DetectReply,
    DrainReply,
    EngineEntry,
    EngineListing,
    MetricsReply,
    PinParams,
    PlanReply,
    ReleaseReply,
    ReloadReply,
    SupervisorInfo,
    Unreadable,
)
from supervisor.lifecycle.api import Supervisor
from supervisor.lifecycle.errors import (
    Forbidden,
    InvalidLaunch,
    LaunchRefused,
    NoSuchInstance,
    StillAlive,
    Unavailable,
    WaitTimedOut,
)
from supervisor.models.estimate import unknown
from supervisor.rpc.server import RpcServer
from supervisor.rpc.socket import listen

AT = "2026-01-02T03:04:05.000Z"
GIB = 1 << 30


def view(
    name: str,
    state: InstanceState = "ready",
    failure: LaunchFailure | None = None,
    *,
    port: int = 21_000,
    nonce: str = "n1",
) -> InstanceView:
    return InstanceView(
        record=InstanceRecord(
            name=name,
            node_id="self",
            engine="vllm",
            recipe_id=name,
            runtime="process",
            ref=ProcessHandle(pid=4711, start_token="b:1"),
            port=port,
            devices=("D0",),
            nonce=nonce,
            started_at=AT,
            ready_deadline_at=AT,
        ),
        state=state,
        health=HealthView(misses=0, last=None),
        intent=None if state == "exited" else "running",
        attempt=1,
        failure=failure,
        first_failure=None,
        exit=None,
        log_path=f"/log/{name}.log",
    )


@dataclass
class FakeSupervisor(Supervisor):
    """Launches that become ready when ``ready`` says so (by default at once)."""

    bus: Bus
    log_dir: Path
    views: dict[str, InstanceView] = field(default_factory=dict)
    refusals: dict[str, LaunchFailure] = field(default_factory=dict)
    """Names whose launch fails, and how."""
    slow: dict[str, asyncio.Event] = field(default_factory=dict)
    """Names whose launch, stop or wait ends when the event is set."""
    launched: list[LaunchParams] = field(default_factory=list)
    stopped: list[tuple[str, str | None, int | None]] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    unread: tuple[Unreadable, ...] = ()
    power_watts: float | None = None
    padding: str = ""
    leaving: bool = False

    def info(self) -> SupervisorInfo:
        return SupervisorInfo(
            version="0.1.0",
            node="self",
            boot_id="b",
            supervisor_id="s",
            pid=1,
            started_at=AT,
            counts={"ready": len(self.views)},
            paths={"socket": "x" + self.padding},
        )

    async def profile(self) -> HostProfile:
        raise RuntimeError("a defect")

    async def snapshot(self) -> DeviceSnapshot:
        device = AcceleratorInfo(
            id="D0",
            index=0,
            vendor="nvidia",
            name="H200",
            accelerator="cuda",
            memory_total_bytes=140 * GIB,
            memory_used_bytes=None,
            unified_memory=False,
            utilization_pct=3.0,
            temperature_c=None,
            power_watts=self.power_watts,
            power_limit_watts=None,
            driver="570",
        )
        return DeviceSnapshot(
            sampled_at=AT,
            accelerators=(device,),
            host=HostInfo(
                cpu_model="c",
                cpu_count=2,
                memory_total_bytes=8 * GIB,
                memory_available_bytes=4 * GIB,
                swap_total_bytes=None,
                platform="linux",
                arch="x64",
                release="6",
                uptime_seconds=1.0,
            ),
            storage=(),
            thermals=(),
            capabilities=(
                *("memory", "utilization", "temperature"),
                *(("power",) if self.power_watts else ()),
            ),
        )

    async def leases(self) -> DeviceLeases:
        holder = LeaseHolder(name="a", nonce="n1", exclusive=True, since=AT)
        sharer = LeaseHolder(name="b", nonce="n2", exclusive=False, since=AT, memory_bytes=16 * GIB)
        return DeviceLeases(
            leases=(
                DeviceLease(
                    device="D0",
                    holders=(holder, sharer),
                    standing="held",
                    withheld=(Withholding(name="c", reason="unreadable"),),
                    foreign=(DeviceProcess(pid=7, name="python", memory_bytes=GIB),),
                    budget_bytes=140 * GIB,
                    claimed_bytes=16 * GIB,
                ),
                DeviceLease(device="gone", holders=(), present=False, standing="lost"),
            )
        )

    async def engines(self) -> EngineListing:
        return EngineListing(
            engines=(
                EngineEntry(
                    id="vllm",
                    support=EngineSupport.supported("process"),
                    runtimes=("process",),
                    default_binary="vllm",
                    default_port=8000,
                    image=None,
                    installed=None,
                ),
                EngineEntry(
                    id="mlx",
                    support=EngineSupport.unsupported("needs Metal"),
                    runtimes=(),
                    default_binary=None,
                    default_port=None,
                    image=None,
                    installed=None,
                ),
            )
        )

    async def plan(self, params: LaunchParams, *, bounded: bool = False) -> PlanReply:
        self._refuse_beyond(bounded)
        plan = LaunchPlan(
            kind="process",
            argv=("vllm", "serve", "/models/my model"),
            env={"A": "secret"},
            ports=(),
            mounts=(),
            devices=("D0",),
            health=HealthCheck(path="/health", ready_deadline_ms=1000, interval_ms=100),
        )
        return PlanReply(
            plan=plan,
            dropped=("quantization",),
            notes=("a note",),
            fit=unknown("a guess"),
            refusal=None,
        )

    def _refuse_beyond(self, bounded: bool) -> None:
        if bounded:
            raise Forbidden("beyond the bounds")

    async def launch(self, params: LaunchParams, *, bounded: bool = False) -> InstanceView:
        self._refuse_beyond(bounded)
        self.launched.append(params)
        if self.leaving:
            raise Unavailable("the daemon is stopping")
        if params.engine is UNSET and params.recipe is UNSET:
            raise InvalidLaunch("an engine or a recipe is needed")
        if params.name in self.views:
            raise LaunchRefused(AlreadyRunning(name=params.name))
        self.bus.publish(Reserved(instance=params.name, engine="vllm", devices=("D0",), port=1))
        await self._pass(params.name)
        if failure := self.refusals.get(params.name):
            raise LaunchRefused(failure)
        self.bus.publish(Phase(instance=params.name, phase="loading", detail="50 %"))
        self.bus.publish(Ready(instance=params.name, port=21_000, waited_ms=5))
        self.views[params.name] = view(params.name)
        return self.views[params.name]

    def list(self, *, ended: bool = False) -> tuple[InstanceView, ...]:
        return tuple(v for v in self.views.values() if ended or v.state != "exited")

    def get(self, name: str) -> InstanceView:
        if name not in self.views:
            raise NoSuchInstance(f"there is no instance {name!r}")
        return self.views[name]

    async def stop(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        found = self.get(name)
        self.stopped.append((name, nonce, grace_ms))
        await self._pass(name)
        self.finished.append(name)
        self.bus.publish(
            Stopped(instance=name, devices=("D0",), exit_code=0, signal=None, killed=())
        )
        self.views[name] = view(name, "exited")
        return found

    async def restart(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        await self.stop(name, nonce=nonce, grace_ms=grace_ms)
        self.views[name] = view(name, "ready")
        return self.views[name]

    async def pin(self, params: PinParams) -> InstanceView:
        if params.name in self.views:
            raise LaunchRefused(AlreadyRunning(name=params.name))
        made = view(params.name, port=0)
        record = replace(
            made.record,
            engine=params.engine,
            devices=params.devices,
            ref=PinnedHandle(holder=params.holder),
        )
        self.views[params.name] = replace(made, record=record, intent=None)
        return self.views[params.name]

    def unreadable(self) -> tuple[Unreadable, ...]:
        return self.unread

    async def release(self, name: str, *, force: bool = False) -> ReleaseReply:
        if any(left.name == name for left in self.unread):
            if not force:
                raise StillAlive(f"{name} is not released: pid 7 (engine) lives")
            return ReleaseReply(devices=("D0",))
        if name not in self.views:
            raise NoSuchInstance(f"there is no hold named {name!r}")
        return ReleaseReply(devices=("D0",))

    async def reload(self) -> ReloadReply:
        return ReloadReply(changed=("restart.max-ms",), at_restart=("socket",))

    async def drain(self, *, grace_ms: int | None) -> DrainReply:
        names = tuple(sorted(self.views))
        for name in names:
            await self.stop(name, nonce=None, grace_ms=grace_ms)
        return DrainReply(stopped=names, failed={})

    async def cancel(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        return await self.stop(name, nonce=nonce, grace_ms=grace_ms)

    async def wait(
        self,
        name: str,
        *,
        nonce: str | None,
        until: Literal["ready", "exited"],
        timeout_ms: int | None,
    ) -> InstanceView:
        found = self.get(name)
        if timeout_ms is not None and name in self.slow:
            raise WaitTimedOut(f"{name} was not {until} in time")
        await self._pass(name)
        if until == "ready" and found.state == "exited":
            raise LaunchRefused(Cancelled())
        return found

    def log_path(self, name: str) -> str:
        self.get(name)
        return str(self.log_dir / f"{name}.log")

    def redactor(self, name: str) -> Callable[[str], str]:
        self.get(name)
        return lambda text: text.replace("SECRET", "***")

    async def detect(self) -> DetectReply:
        ours = DetectedEngine(
            pid=4711,
            engine="vllm",
            model="/models/m",
            served_model_name="m",
            port=21_000,
            listening=(21_000,),
            masks={"CUDA_VISIBLE_DEVICES": "D0"},
            instance="a",
            devices=("D0",),
            user="engines",
        )
        theirs = DetectedEngine(
            pid=4712,
            engine="llamacpp",
            model=None,
            served_model_name=None,
            port=8080,
            listening=None,
            masks=None,
            instance=None,
        )
        return DetectReply(engines=(ours, theirs), unreadable=3)

    async def metrics(self, name: str) -> MetricsReply:
        self.get(name)
        return MetricsReply(
            name=name,
            engine="llamacpp",
            metrics=CanonicalMetrics(
                requests_running=2.0,
                requests_waiting=0.0,
                kv_cache_utilization=None,
                prompt_tokens_total=None,
                generation_tokens_total=1e15,
            ),
            unsupported=("kvCacheUtilization",),
        )

    async def _pass(self, name: str) -> None:
        if gate := self.slow.get(name):
            await gate.wait()


@dataclass
class Served:
    """A server that runs in a thread of its own, for clients that block."""

    path: str
    supervisor: FakeSupervisor
    bus: Bus
    server: RpcServer
    loop: asyncio.AbstractEventLoop

    def publish(self, *events: Event) -> None:
        def all_of_them() -> None:
            for event in events:
                self.bus.publish(event)

        self.loop.call_soon_threadsafe(all_of_them)

    def release(self, name: str) -> None:
        self.loop.call_soon_threadsafe(self.supervisor.slow[name].set)


@contextmanager
def serving(directory: Path, access: AccessConfig | None = None, **server: int) -> Iterator[Served]:
    """A fake supervisor behind a real socket in ``directory``."""
    started = threading.Event()
    served: list[Served] = []
    leave = asyncio.Event()
    path = str(directory / "engined.sock")
    listener = listen(path)

    async def main() -> None:
        bus = Bus(epoch="e", last_seq=0, now=lambda: AT)
        fake = FakeSupervisor(bus, directory)
        async with RpcServer(fake, bus, listener, access or AccessConfig(), **server) as running:
            served.append(Served(path, fake, bus, running, asyncio.get_running_loop()))
            started.set()
            await leave.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield served[0]
    finally:
        served[0].loop.call_soon_threadsafe(leave.set)
        thread.join(10)
        assert not thread.is_alive()
