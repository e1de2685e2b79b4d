"""NVIDIA devices by NVML. Runs in the probe child only: any of these calls may hang for ever.

Each field is asked for on its own and fails on its own. What a driver answers instead of "not
known" (all bits set, zero for a size) is not known. Facts about codes and structs are from NVIDIA's
own binding (``pynvml`` of nvidia-ml-py), which is imported here and nowhere else.
"""

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from msgspec import UNSET, UnsetType

from supervisor.contracts.device import (
    AcceleratorInfo,
    DeviceAccess,
    DeviceLink,
    DeviceProcess,
    DeviceTopology,
)
from supervisor.contracts.host import DeviceId
from supervisor.devices.nvml_calls import (
    ABSENT,
    ARGUMENT_VERSION,
    FUNCTION_NOT_FOUND,
    NOT_SUPPORTED,
    LostError,
    called,
    must,
    preload,
    value,
)
from supervisor.devices.probe import ProbeAnswer, answered, within
from supervisor.devices.roots import Roots, number, text
from supervisor.devices.tegra import is_tegra, tegra_gpu, tegra_load, tegra_temperature

# Devices whose memory is the host's. The compute capabilities are those of integrated GPUs alone:
# Jetson Nano and TX1, TX2, Xavier, Orin, Thor (before and since CUDA 13), and GB10.
_INTEGRATED = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
_INTEGRATED_NAME = re.compile(r"\b(GB10|Tegra|Xavier|Orin|Thor|Jetson)\b")

_ANCESTORS: dict[int, DeviceLink] = {
    0: "board",
    10: "switch",
    20: "switch",
    30: "bridge",
    40: "node",
    50: "system",
}
_MOST_BYTES = 1 << 48


class NvmlProbe:
    """Keeps the library open between samples, for opening it attaches to every GPU anew."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._nvml: ModuleType | None = None
        self._open = False
        self._links: dict[frozenset[DeviceId], DeviceLink | None] = {}

    def sample(self) -> ProbeAnswer:
        """All devices now; a driver that cannot be asked is an answer too."""
        if self._nvml is None:
            import pynvml  # half a megabyte of code, for hosts that have such a device

            self._nvml = pynvml
            preload()
        error: type[Exception] = self._nvml.NVMLError
        try:
            if not self._open:
                self._nvml.nvmlInit()
                self._open = True
            return self._read(self._nvml)
        except error as refused:
            return self._refusal(getattr(refused, "value", None), str(refused))

    def _refusal(self, code: int | None, reason: str) -> ProbeAnswer:
        tegra = tegra_gpu(self._roots)
        if tegra is not None:
            return ProbeAnswer(
                accelerators=(tegra,),
                capabilities=answered((tegra,)),
                host_memory=(tegra.id,),
                reason=f"NVML: {reason}; read from sysfs instead",
            )
        absent = code in ABSENT
        return ProbeAnswer(
            state="absent" if absent else "failed",
            reason=f"NVML: {reason}",
            expects=UNSET if absent else "cuda",
        )

    def _read(self, nvml: ModuleType) -> ProbeAnswer:
        driver = value(nvml, nvml.nvmlSystemGetDriverVersion)
        lost: list[str] = []
        cards: list[list[_Device]] = []
        for at in range(nvml.nvmlDeviceGetCount()):
            name = f"GPU {at}"
            try:
                device = _Device(nvml, must(nvml, nvml.nvmlDeviceGetHandleByIndex, at))
                name = f"GPU {at} ({device.uuid})"
                device.read(driver, self._roots)
                cards.append([device, *device.slices(driver, self._roots)])
            except LostError as error:
                lost.append(f"{name} {error}")
        if all(card[0].address for card in cards):
            # NVML promises no order; CUDA's numbers, and so our places, follow the bus.
            cards.sort(key=lambda card: card[0].address or "")
        found = [device for card in cards for device in card]
        self._relate(nvml, [it for it in found if it.parent is None])
        devices = tuple(it.info(at) for at, it in enumerate(found))
        return ProbeAnswer(
            accelerators=devices,
            capabilities=answered(devices),
            reason="; ".join(lost) or UNSET,
            lost=tuple(lost),
            host_memory=tuple(it.uuid for it in found if it.on_host),
            memory_nodes=tuple({it.memory_node for it in found if it.memory_node is not None}),
        )

    def _relate(self, nvml: ModuleType, devices: "list[_Device]") -> None:
        """How near the devices are to one another. That does not change, so it is asked once."""
        for at, one in enumerate(devices):
            for other in devices[at + 1 :]:
                pair = frozenset((one.uuid, other.uuid))
                if pair not in self._links:
                    self._links[pair] = _link(nvml, one.handle, other.handle)
                link = self._links[pair]
                if link is not None:
                    one.links[other.uuid] = other.links[one.uuid] = link


class _Device:
    """One GPU, or one MIG slice of it, while it is read."""

    def __init__(self, nvml: ModuleType, handle: Any, parent: "_Device | None" = None) -> None:
        self._nvml = nvml
        self.handle = handle
        self.parent = parent
        self.uuid: DeviceId = str(must(nvml, nvml.nvmlDeviceGetUUID, handle))
        self.links: dict[DeviceId, DeviceLink] = {}
        self.on_host = False
        self.memory_node: int | None = None

    def read(self, driver: str | None, roots: Roots) -> None:
        nvml = self._nvml
        self._driver = driver
        self._name = self._ask("nvmlDeviceGetName") or "NVIDIA GPU"
        capability = self._ask("nvmlDeviceGetCudaComputeCapability")
        self._integrated = self.parent is None and (
            tuple(capability or ()) in _INTEGRATED or bool(_INTEGRATED_NAME.search(self._name))
        )
        self._total, self._used = self._memory()
        self._load = within(_gpu(self._ask("nvmlDeviceGetUtilizationRates")), 0, 100)
        self._heat = within(self._temperature(nvml), -40, 150)
        self._power = within(_watts(self._ask("nvmlDeviceGetPowerUsage")), 0, 10_000)
        self._limit = within(_watts(self._ask("nvmlDeviceGetEnforcedPowerLimit")), 1, 10_000)
        if self._integrated and is_tegra(roots):
            # Its library says success with zero, or with garbage.
            self._load = tegra_load(roots) if tegra_load(roots) is not None else self._load
            self._heat = tegra_temperature(roots) or (self._heat or None)
        self._address = _address(self._ask("nvmlDeviceGetPciInfo"))
        self._minor = self._ask("nvmlDeviceGetMinorNumber")
        if not self._integrated and self.parent is None:
            self.memory_node = self._ask("nvmlDeviceGetNumaNodeId")
        place = roots.sys / "bus" / "pci" / "devices" / (self._address or "-")
        node = number(place / "numa_node")
        self._node = None if node is None or node < 0 else node
        self._processes = self._occupants(roots)

    def slices(self, driver: str | None, roots: Roots) -> "list[_Device]":
        """Its MIG devices, each a device of its own."""
        mode = self._ask("nvmlDeviceGetMigMode")
        if mode is None or not mode[0]:
            return []
        found = []
        for at in range(self._ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
            handle = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", at)
            if handle is not None:
                device = _Device(self._nvml, handle, self)
                device.read(driver, roots)
                found.append(device)
        return found

    @property
    def address(self) -> str | None:
        """On the bus; none of a chip that has the GPU inside."""
        return self._address

    def info(self, index: int) -> AcceleratorInfo:
        whole = self.parent or self
        node = None if whole._minor is None else f"/dev/nvidia{whole._minor}"
        return AcceleratorInfo(
            id=self.uuid,
            index=index,
            vendor="nvidia",
            name=self._name,
            accelerator="cuda",
            memory_total_bytes=self._total,
            memory_used_bytes=self._used,
            unified_memory=self._integrated,
            utilization_pct=self._load,
            temperature_c=self._heat,
            power_watts=self._power,
            power_limit_watts=self._limit,
            driver=self._driver,
            access=DeviceAccess(
                pci_address=whole._address,
                nodes=() if node is None else (node,),
                parent=None if self.parent is None else self.parent.uuid,
            ),
            topology=DeviceTopology(numa_node=whole._node, links=self.links),
            processes=self._processes,
        )

    def _memory(self) -> tuple[int | None, int | None]:
        """Total and used bytes. Only "not supported", on a device that is known to be integrated,
        means that it uses the host's: a lost GPU or a slice that is silent must stay unknown.
        """
        nvml = self._nvml
        try:
            seen = called(nvml, nvml.nvmlDeviceGetMemoryInfo, self.handle, nvml.nvmlMemory_v2)
        except nvml.NVMLError as error:
            if error.value in (FUNCTION_NOT_FOUND, ARGUMENT_VERSION):
                seen = self._ask("nvmlDeviceGetMemoryInfo")
            else:
                self.on_host = self._integrated and error.value == NOT_SUPPORTED
                return None, None
        if self._integrated:
            self.on_host = seen is not None
            return None, None
        total = None if seen is None else within(seen.total, 1, _MOST_BYTES)
        used = None if seen is None or total is None else within(seen.used, 0, total)
        return None if total is None else int(total), None if used is None else int(used)

    def _temperature(self, nvml: ModuleType) -> float | None:
        # The older of the two goes in CUDA 14, the newer one came in 12.8.
        newer = self._ask("nvmlDeviceGetTemperatureV", nvml.NVML_TEMPERATURE_GPU)
        seen = newer if newer is not None else self._ask("nvmlDeviceGetTemperature", 0)
        return None if seen is None else float(seen)

    def _occupants(self, roots: Roots) -> tuple[DeviceProcess, ...] | UnsetType:
        compute = self._listed("nvmlDeviceGetComputeRunningProcesses")
        shared = self._listed("nvmlDeviceGetMPSComputeRunningProcesses") or ()
        drawing = self._listed("nvmlDeviceGetGraphicsRunningProcesses")
        if compute is None:
            return UNSET
        computing = {it.pid for it in (*compute, *shared)}
        found: dict[int, DeviceProcess] = {}
        for it in (*compute, *shared, *(drawing or ())):
            used = within(it.usedGpuMemory, 0, _MOST_BYTES)
            known = found.get(it.pid)
            if known is None or known.memory_bytes is None:
                found[it.pid] = DeviceProcess(
                    pid=it.pid,
                    memory_bytes=None if used is None else int(used),
                    graphics_only=it.pid not in computing,
                    name=text(roots.proc / str(it.pid) / "comm"),
                )
        return tuple(found[pid] for pid in sorted(found))

    def _listed(self, function: str) -> Any:
        """By the version of the call that the driver has; the binding's own name insists on one."""
        newest = self._ask(f"{function}_v3")
        return newest if newest is not None else self._ask(f"{function}_v2")

    def _ask(self, function: str, *more: Any) -> Any:
        call: Callable[..., Any] | None = getattr(self._nvml, function, None)
        return None if call is None else value(self._nvml, call, self.handle, *more)


def _link(nvml: ModuleType, one: Any, other: Any) -> DeviceLink | None:
    if _pair(nvml, "nvmlDeviceGetP2PStatus", one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == 0:
        return "nvlink"
    return _ANCESTORS.get(_pair(nvml, "nvmlDeviceGetTopologyCommonAncestor", one, other))


def _pair(nvml: ModuleType, function: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None


def _gpu(rates: Any) -> float | None:
    return None if rates is None else float(rates.gpu)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _address(pci: Any) -> str | None:
    """NVML writes ``00000000:1B:00.0``, the kernel ``0000:1b:00.0``."""
    if pci is None:
        return None
    domain, _, rest = str(pci.busId).lower().partition(":")
    return f"{domain[-4:]}:{rest}"
