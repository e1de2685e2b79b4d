"""The snapshot of everything the probes see, taken off the event loop and shared by all callers."""

from collections.abc import Callable, Sequence
from datetime import datetime

import anyio
import anyio.to_thread

from supervisor.contracts.device import DeviceSnapshot, TelemetryField
from supervisor.contracts.host import SELF, Accelerator, HostProfile
from supervisor.devices.host import cpu_model, is_wsl, sample_host, sample_volumes
from supervisor.devices.probe import Probe

FRESH_NS = 1_000_000_000
"""A snapshot this young answers everybody; nobody needs device memory by the millisecond."""

_PREFERRED: tuple[Accelerator, ...] = ("cuda", "rocm", "metal", "xpu")
_FIELDS: tuple[TelemetryField, ...] = (
    "memory",
    "utilization",
    "temperature",
    "power",
    "storage",
    "hostMemory",
)


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
    ) -> None:
        self._probes = tuple(probes)
        self._volumes = tuple(volumes)
        self._monotonic_ns = monotonic_ns
        self._wall = wall
        self._stamp = stamp
        self._model = cpu_model()
        self._taking = anyio.Lock()
        self._latest: tuple[int, DeviceSnapshot] | None = None

    async def snapshot(self) -> DeviceSnapshot:
        """All devices and the host. At most a second old; concurrent callers share one round."""
        async with self._taking:
            now = self._monotonic_ns()
            if self._latest is None or now - self._latest[0] > FRESH_NS:
                self._latest = now, await anyio.to_thread.run_sync(self._take)
            return self._latest[1]

    async def profile(self) -> HostProfile:
        """The facts that decide what runs here. Static devices count like probed ones."""
        snapshot = await self.snapshot()
        kinds = {device.accelerator for device in snapshot.accelerators}
        accelerator: Accelerator = next((kind for kind in _PREFERRED if kind in kinds), "cpu")
        return HostProfile(
            node_id=SELF,
            platform=snapshot.host.platform,
            arch=snapshot.host.arch,
            accelerator=accelerator,
            unified_memory=all(
                device.unified_memory
                for device in snapshot.accelerators
                if device.accelerator == accelerator
            ),
            wsl=is_wsl(snapshot.host.release),
            docker=False,
            docker_gpu=False,
            device_count=sum(device.accelerator != "cpu" for device in snapshot.accelerators),
        )

    def _take(self) -> DeviceSnapshot:
        answers = [probe.sample() for probe in self._probes]
        storage = sample_volumes(self._volumes)
        capable: set[TelemetryField] = {"hostMemory"}
        capable.update(*(answer.capabilities for answer in answers))
        if storage:
            capable.add("storage")
        return DeviceSnapshot(
            sampled_at=self._stamp(self._wall()),
            accelerators=tuple(device for answer in answers for device in answer.accelerators),
            host=sample_host(self._model),
            storage=storage,
            thermals=(),
            capabilities=tuple(field for field in _FIELDS if field in capable),
        )
