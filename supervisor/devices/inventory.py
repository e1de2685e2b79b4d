"""The snapshot of everything the probes see, taken off the event loop and shared by all callers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.device import (
    AcceleratorInfo,
    DeviceSnapshot,
    LostDevice,
    ProbeReport,
    TelemetryField,
)
from supervisor.contracts.host import SELF, Accelerator, DeviceId, HostProfile
from supervisor.devices.host import (
    cpu_model,
    host_memory,
    is_wsl,
    sample_host,
)
from supervisor.devices.mask import visible
from supervisor.devices.probe import Probe, ProbeAnswer
from supervisor.devices.prober import Held, Prober
from supervisor.devices.roots import HOST, Roots
from supervisor.devices.telling import aged, filled, outdated, own_thermals, placed
from supervisor.devices.traces import vendors_here
from supervisor.devices.volumes import sample_volumes
from supervisor.patience import Overdue

FRESH_NS = 1_000_000_000
"""A snapshot this young answers everybody; nobody needs device memory by the millisecond."""
ROUND_S = 5.0
"""How long a round is waited for: the probe process takes a second of it at most, and the host's
own files nothing worth mentioning, unless one hangs."""
FIRST_ROUND_S = 20.0
"""The same while nothing is known yet; a driver may have to attach to every GPU first."""

_PREFERRED: tuple[Accelerator, ...] = ("cuda", "rocm", "metal", "xpu")
_FIELDS: tuple[TelemetryField, ...] = (
    "memory",
    "utilization",
    "temperature",
    "power",
    "storage",
    "hostMemory",
)


Containers = Callable[[Accelerator], Awaitable[tuple[bool, bool]]]
"""Whether a container engine answers, and whether its containers reach devices of this kind."""


async def no_containers(accelerator: Accelerator) -> tuple[bool, bool]:
    """On a host that has none."""
    return False, False


class DevicesUnknown(Overdue):
    """No round came back in time, and there is none before it that would do."""


class Inventory:
    """Asks all probes together, one round at a time."""

    def __init__(
        self,
        probes: Sequence[Probe],
        volumes: Sequence[str],
        *,
        monotonic_ns: Callable[[], int],
        wall: Callable[[], datetime],
        stamp: Callable[[datetime], str],
        prober: Prober | None = None,
        env: Mapping[str, str] | None = None,
        roots: Roots = HOST,
        containers: Containers = no_containers,
    ) -> None:
        """``probes`` answer in this process, ``prober`` asks those that may hang in one of their
        own. ``env`` is the daemon's, whose device masks it keeps to.
        """
        self._containers = containers
        self._probes = tuple(probes)
        self._volumes = tuple(volumes)
        self.more_volumes: Callable[[], Iterable[str]] = tuple
        """Paths that come and go, such as those of models in use; asked for at each round."""
        self.on_round: Callable[[DeviceSnapshot], None] = lambda snapshot: None
        """Called on the loop with each new snapshot, whoever asked for it."""
        self._monotonic_ns = monotonic_ns
        self._wall = wall
        self._stamp = stamp
        self._prober = prober
        self._env = dict(env or {})
        self._roots = roots
        self._model = cpu_model(roots.proc / "cpuinfo")
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="devices")
        self._round: asyncio.Future[DeviceSnapshot] | None = None
        self._began = 0
        self._latest: tuple[int, DeviceSnapshot] | None = None
        self._expects: Accelerator | None = None
        self._capable: set[TelemetryField] = {"hostMemory"}
        self._seen: dict[DeviceId, tuple[str, str]] = {}
        """The name and the probe of every device that was ever there."""
        self._lost: dict[DeviceId, LostDevice] = {}

    async def snapshot(self, *, fresh: bool = False) -> DeviceSnapshot:
        """All devices and the host; at most a second old, or begun after this call (``fresh``).

        Concurrent callers share one round. One that is cancelled does not end it. While a round
        hangs, what was known is handed out with its age, and nobody waits who comes later. Raises
        ``DevicesUnknown`` where nothing is known, or nothing that is ``fresh``.
        """
        if fresh and self._round is not None and not await self._came(self._round):
            raise self._unknown()
        now = self._monotonic_ns()
        if self._round is None and not fresh and self._latest and now - self._latest[0] <= FRESH_NS:
            return self._latest[1]
        if self._round is None:
            paths = dict.fromkeys((*self._volumes, *self.more_volumes()))
            loop = asyncio.get_running_loop()
            self._round = loop.run_in_executor(self._thread, self._take, paths)
            self._began = now
            self._round.add_done_callback(lambda done: self._keep(now, done))
        running = self._round
        if await self._came(running):
            return running.result()
        if fresh or self._latest is None:
            raise self._unknown()
        began, known = self._latest
        return outdated(known, (self._monotonic_ns() - began) / 1e9)

    async def _came(self, running: "asyncio.Future[DeviceSnapshot]") -> bool:
        """Whether the round came back within the time that it has from its beginning."""
        limit_s = FIRST_ROUND_S if self._latest is None else ROUND_S
        left_s = limit_s - self._running_s()
        done, _ = await asyncio.wait([running], timeout=max(0.0, left_s))
        return bool(done)

    def _running_s(self) -> float:
        return (self._monotonic_ns() - self._began) / 1e9

    def _unknown(self) -> DevicesUnknown:
        return DevicesUnknown(
            "the devices have not been seen: looking at this host hangs, "
            f"{self._running_s():.0f} s by now; does a file system hang?"
        )

    @property
    def latest(self) -> DeviceSnapshot | None:
        """The newest one there is, however old."""
        return self._latest[1] if self._latest else None

    @property
    def watchable(self) -> bool:
        """Whether devices can come and go; what the config declares does neither."""
        return self._prober is not None

    def _keep(self, began: int, done: "asyncio.Future[DeviceSnapshot]") -> None:
        self._round = None
        if not done.cancelled() and done.exception() is None:
            self._latest = began, done.result()
            self.on_round(done.result())

    async def profile(self) -> HostProfile:
        """The facts that decide what runs here. Static devices count like probed ones."""
        snapshot = await self.snapshot()
        # An integrated Intel GPU is in most desktops, and no engine is meant to go there unasked.
        kinds = {
            device.accelerator
            for device in snapshot.accelerators
            if not (device.vendor == "intel" and device.unified_memory)
        }
        if self._expects is not None:
            kinds.add(self._expects)
        accelerator: Accelerator = next((kind for kind in _PREFERRED if kind in kinds), "cpu")
        mine = [it for it in snapshot.accelerators if it.accelerator == accelerator]
        sliced = {it.access.parent for it in snapshot.accelerators if it.access is not UNSET}
        docker, docker_gpu = await self._containers(accelerator)
        return HostProfile(
            node_id=SELF,
            platform=snapshot.host.platform,
            arch=snapshot.host.arch,
            accelerator=accelerator,
            unified_memory=bool(mine) and all(device.unified_memory for device in mine),
            wsl=is_wsl(snapshot.host.release),
            docker=docker,
            docker_gpu=docker_gpu,
            device_count=sum(
                device.accelerator != "cpu" and device.id not in sliced
                for device in snapshot.accelerators
            ),
        )

    def close(self) -> None:
        """End the probe process. Blocks, for as long as a process takes to die."""
        if self._prober is not None:
            self._prober.close()
        self._thread.shutdown(wait=False)

    # ── one round, in its own thread ─────────────────────────────────────────

    def _take(self, paths: Iterable[str]) -> DeviceSnapshot:
        held: dict[str, Held] = {}
        if self._prober is not None:
            held = self._prober.ask(vendors_here(self._roots, self._env))
        told = [_sample(probe) for probe in self._probes]
        answers = [*(it.answer for it in held.values()), *told]
        self._expects = next((it.expects for it in answers if it.expects is not UNSET), None)
        nodes = {node for answer in answers for node in answer.memory_nodes}
        memory = host_memory(self._roots, nodes)
        thermals = tuple(thermal for answer in answers for thermal in answer.thermals)
        listed = [it for one in held.values() for it in placed(aged(one), one.answer.lost)]
        probed = visible(listed, self._env)
        merged: dict[DeviceId, AcceleratorInfo] = {}
        for device in (*probed, *(it for answer in told for it in answer.accelerators)):
            merged.setdefault(device.id, device)  # what is probed is known better than declared
        on_host = {name for answer in answers for name in answer.host_memory}
        devices = tuple(
            replace(filled(device, memory, thermals, on_host), index=at)
            for at, device in enumerate(merged.values())
        )
        storage = sample_volumes(paths, self._roots)
        self._capable.update(*(answer.capabilities for answer in answers))
        self._capable.update(["storage"] if storage else [])
        thermals += tuple(own_thermals(devices))
        self._capable.update(["temperature"] if thermals else [])
        self._notice(devices, held)
        return DeviceSnapshot(
            sampled_at=self._stamp(self._wall()),
            accelerators=devices,
            host=sample_host(self._model, memory, self._roots),
            storage=storage,
            thermals=thermals,
            capabilities=tuple(field for field in _FIELDS if field in self._capable),
            probes=tuple(
                ProbeReport(probe=name, state=it.state, reason=it.answer.reason)
                for name, it in held.items()
            ),
            lost=tuple(self._lost.values()),
        )

    def _notice(self, devices: Iterable[AcceleratorInfo], held: Mapping[str, Held]) -> None:
        """What was there and is not any more stays on a list, until it is back."""
        present = {device.id: device for device in devices}
        owners = {it.id: name for name, one in held.items() for it in one.answer.accelerators}
        for name, device in present.items():
            self._lost.pop(name, None)
            self._seen[name] = device.name, owners.get(name, "")
        for name, (title, probe) in self._seen.items():
            if name not in present and name not in self._lost:
                answer = held[probe].answer if probe in held else None
                told = answer.lost if answer else ()
                reason = next((it for it in told if name in it), "; ".join(told))
                self._lost[name] = LostDevice(
                    id=name,
                    name=title,
                    reason=reason or "the driver does not list it any more",
                    since=self._stamp(self._wall()),
                )


def _sample(probe: Probe) -> ProbeAnswer:
    try:
        return probe.sample()
    except Exception as error:  # one probe's defect must not hide what the others see
        return ProbeAnswer(state="failed", reason=f"{type(error).__name__}: {error}")
