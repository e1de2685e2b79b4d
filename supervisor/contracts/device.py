"""What the probes of a host can say about its accelerators, memory, storage and temperatures."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from supervisor.contracts._base import Fact
from supervisor.contracts.host import Accelerator, DeviceId, HostArch, HostPlatform

TelemetryField = Literal["memory", "utilization", "temperature", "power", "storage", "hostMemory"]
DeviceVendor = Literal["nvidia", "amd", "apple", "intel", "unknown"]
ThermalSource = Literal["gpu", "cpu", "chassis"]


class DeviceAccess(Fact, frozen=True, kw_only=True):
    """How a device is reached: what numbers it, and what a container needs in order to see it."""

    pci_address: str | None = None
    """``0000:c3:00.0``; runtimes that number devices are told to do it in this order."""
    nodes: tuple[str, ...] = ()
    """Its own device files (``/dev/dri/renderD128``), not those that devices share."""
    groups: tuple[int, ...] = ()
    """Numeric ids of the groups that own them."""
    cdi: str | None = None
    """Its qualified CDI name, where the container engine has a specification that holds it."""
    parent: DeviceId | None = None
    """Of a slice of a device (MIG): the whole, which is never used beside its slices."""
    place: int | None = None
    """Its number for a runtime that counts whole devices of its kind in the order of the bus. Those
    count too that the daemon's own mask hides; null where it cannot be told."""


DeviceLink = Literal["nvlink", "board", "switch", "bridge", "node", "system"]
"""What lies between two devices, the nearest first: a link of their own, one board, PCIe switches,
a host bridge, a NUMA node, the whole system.
"""


class DeviceTopology(Fact, frozen=True, kw_only=True):
    """Where a device sits, for launches that span several."""

    numa_node: int | None = None
    links: dict[DeviceId, DeviceLink] = msgspec.field(default_factory=dict)
    """To the other devices of this snapshot that the probe can say it of."""


class DeviceProcess(Fact, frozen=True, kw_only=True):
    """A process that uses a device, as the vendor's driver tells."""

    pid: int
    """As this host counts, the container's own number never."""
    memory_bytes: int | None = None
    """Of the device's memory; null where the driver does not say."""
    graphics_only: bool = False
    """A display server or the like: it draws and computes nothing."""
    name: str | None = None


class AcceleratorInfo(Fact, frozen=True, kw_only=True):
    """One device. ``None`` means that the platform cannot report it, never zero."""

    id: DeviceId
    index: int
    """Position in this snapshot, for people; renumbered at will."""
    vendor: DeviceVendor
    name: str
    accelerator: Accelerator
    memory_total_bytes: int | None
    """Host memory on unified devices. Nullable, unlike the seed's: a discrete card may refuse."""
    memory_used_bytes: int | None
    unified_memory: bool
    utilization_pct: float | None
    temperature_c: float | None
    power_watts: float | None
    power_limit_watts: float | None
    driver: str | None
    access: DeviceAccess | UnsetType = UNSET
    topology: DeviceTopology | UnsetType = UNSET
    processes: tuple[DeviceProcess, ...] | UnsetType = UNSET
    """Everybody on it, ours included. Left out where it cannot be told, which is not nobody."""
    age_ms: int | UnsetType = UNSET
    """How old this is, where its driver did not answer in time for this snapshot."""


class HostInfo(Fact, frozen=True, kw_only=True):
    """The machine around the devices."""

    cpu_model: str
    cpu_count: int
    memory_total_bytes: int
    memory_available_bytes: int
    swap_total_bytes: int | None
    platform: HostPlatform
    arch: HostArch
    release: str
    uptime_seconds: float


class VolumeInfo(Fact, frozen=True, kw_only=True):
    """A mounted file system that models, state or logs live on."""

    mount: str
    total_bytes: int | None
    """Nullable, unlike the seed's: a network mount is never waited for."""
    free_bytes: int | None
    filesystem: str | None
    model: str | None
    rotational: bool | None


class ThermalInfo(Fact, frozen=True, kw_only=True):
    """One temperature and what it belongs to."""

    label: str
    celsius: float
    source: ThermalSource


ProbeState = Literal["ok", "absent", "failed", "stale"]


class ProbeReport(Fact, frozen=True, kw_only=True):
    """How one vendor's probe fared.

    ``absent``: nothing of that vendor is here. ``failed``: it is, and cannot be asked, for this
    ``reason``. ``stale``: it did not answer in time, and what is shown of it is older.
    """

    probe: str
    state: ProbeState
    reason: str | UnsetType = UNSET


class LostDevice(Fact, frozen=True, kw_only=True):
    """A device that was there under this daemon, and is not any more."""

    id: DeviceId
    name: str
    reason: str
    since: str
    """RFC 3339 UTC."""


class DeviceSnapshot(Fact, frozen=True, kw_only=True):
    """All of it, at one moment. A field missing from ``capabilities`` is unsupported here."""

    sampled_at: str
    accelerators: tuple[AcceleratorInfo, ...]
    host: HostInfo
    storage: tuple[VolumeInfo, ...]
    thermals: tuple[ThermalInfo, ...]
    capabilities: tuple[TelemetryField, ...]
    probes: tuple[ProbeReport, ...] = ()
    lost: tuple[LostDevice, ...] = ()


class LeaseHolder(Fact, frozen=True, kw_only=True):
    """An instance whose record claims a device."""

    name: str
    nonce: str
    exclusive: bool
    since: str
    """RFC 3339 UTC, when the reservation was written."""
    memory_bytes: int | UnsetType = UNSET


DeviceStanding = Literal["free", "held", "foreign", "lost"]
"""Nobody has it; a record does (or its whole, or a slice of it); nobody of ours, and a process of
somebody else computes on it; a record has it and no probe sees it.
"""


class Withholding(Fact, frozen=True, kw_only=True):
    """A record that cannot be read, and so keeps a device from everybody."""

    name: str
    """What ``instance.release`` takes."""
    reason: str


class DeviceLease(Fact, frozen=True, kw_only=True):
    """A device and who holds it."""

    device: DeviceId
    holders: tuple[LeaseHolder, ...]
    present: bool = True
    """False for a device that a record claims and no probe sees now."""
    standing: DeviceStanding = "free"
    withheld: tuple[Withholding, ...] = ()
    foreign: tuple[DeviceProcess, ...] = ()
    """Processes that compute on it and belong to no instance of ours."""
    budget_bytes: int | None = None
    """What holders may claim together; null where the device does not tell its size."""
    claimed_bytes: int = 0
    """What they do claim. Devices of the host's own memory have one budget and one sum."""


class DeviceLeases(Fact, frozen=True, kw_only=True):
    """The reply of ``device.leases``."""

    leases: tuple[DeviceLease, ...]
