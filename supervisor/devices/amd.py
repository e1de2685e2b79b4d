"""AMD devices by sysfs: the driver's files for each card, and KFD's for what can compute.

The files are those of the kernel's documentation (gpu/amdgpu/driver-misc); AMD's own library is
asked besides, for what they leave open, where it can be imported.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from supervisor.contracts.device import AcceleratorInfo, DeviceLink, DeviceProcess
from supervisor.contracts.host import DeviceId
from supervisor.devices.amdsmi import Smi
from supervisor.devices.drm import Card, cards, degrees, pci_name, watts
from supervisor.devices.probe import ProbeAnswer, answered, within
from supervisor.devices.roots import Roots, listing, number, text

VENDOR = "0x1002"
# LLVM's list of GPUs that are part of a processor, as KFD writes it (gfx90c is 90012).
_INTEGRATED = frozenset(
    {
        *(90002, 90009, 90012),  # Raven, Renoir and their kin
        *(100103, 100303, 100305, 100306),  # Cyan Skillfish, Van Gogh, Rembrandt, Raphael
        *(110003, 110500, 110501, 110502, 110503),  # Phoenix, Strix, Strix Halo, Krackan
    }
)
_IO_LINK_XGMI = 11
_XGMI: DeviceLink = "nvlink"
"""The contract's word for any vendor's link between two cards."""
_MOST_BYTES = 1 << 48
_UNIQUE = re.compile(r"[0-9a-fA-F]{1,16}")


@dataclass(frozen=True, slots=True)
class _Node:
    """A GPU in KFD's topology."""

    gpu_id: int
    place: int
    """The number of its folder, which its neighbours know it by."""
    facts: Mapping[str, int]
    linked: frozenset[int]
    """The places of GPUs that it has a link of its own to (XGMI)."""

    @property
    def address(self) -> str:
        spot = self.facts.get("location_id", 0)
        return (
            f"{self.facts.get('domain', 0):04x}:{spot >> 8 & 0xFF:02x}:"
            f"{spot >> 3 & 0x1F:02x}.{spot & 7}"
        )

    @property
    def integrated(self) -> bool:
        """MI300A says so by having processors of its own, as the oldest of the kind did."""
        own = self.facts.get("cpu_cores_count", 0) > 0
        return own or self.facts.get("gfx_target_version") in _INTEGRATED


class AmdProbe:
    """Every card that can compute, by its unique id, else by its address."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._smi: Smi | None = None

    def sample(self) -> ProbeAnswer:
        if self._smi is None:
            self._smi = Smi.opened()
        nodes = _kfd(self._roots)
        devices: dict[DeviceId, AcceleratorInfo] = {}
        order: dict[DeviceId, int] = {}
        places: dict[int, DeviceId] = {}
        for at, card in enumerate(cards(self._roots, VENDOR)):
            node = None if nodes is None else nodes.get(card.address)
            if nodes is not None and node is None:
                continue  # it draws, and cannot compute
            device = self._smi.completed(card.address, self._read(card, node))
            # The partitions of one card share its id; the first one stands for the card.
            if device.id not in devices:
                devices[device.id] = device
                order[device.id] = at if node is None else node.place
                if node is not None:
                    places[node.place] = device.id
        found = sorted(devices.values(), key=lambda it: order[it.id])
        if not found:
            return ProbeAnswer(state="absent", reason="no AMD card that can compute")
        links = {
            places[node.place]: {places[it]: _XGMI for it in sorted(node.linked) if it in places}
            for node in (nodes or {}).values()
            if node.place in places
        }
        return ProbeAnswer(
            accelerators=tuple(
                _related(replace(it, index=at), links.get(it.id, {})) for at, it in enumerate(found)
            ),
            capabilities=answered(found),
            host_memory=tuple(it.id for it in found if it.unified_memory),
        )

    def _read(self, card: Card, node: _Node | None) -> AcceleratorInfo:
        unique = text(card.device / "unique_id") or ""
        integrated = node is not None and node.integrated
        total = within(number(card.device / "mem_info_vram_total"), 1, _MOST_BYTES)
        used = within(number(card.device / "mem_info_vram_used"), 0, total or 0)
        known = not integrated and total is not None
        return AcceleratorInfo(
            id=f"amd:{unique.lower()}" if _is_id(unique) else f"amd:{card.address}",
            index=0,
            vendor="amd",
            name=self._name(card),
            accelerator="rocm",
            memory_total_bytes=int(total) if known and total is not None else None,
            memory_used_bytes=int(used) if known and used is not None else None,
            unified_memory=integrated,
            utilization_pct=within(number(card.device / "gpu_busy_percent"), 0, 100),
            temperature_c=degrees(card.hwmon, "temp1_input", "temp2_input"),
            power_watts=watts(card.hwmon, "power1_average", "power1_input"),
            power_limit_watts=watts(card.hwmon, "power1_cap"),
            driver=text(self._roots.sys / "module" / "amdgpu" / "version"),
            access=card.access(self._roots),
            topology=card.topology,
            processes=UNSET if node is None else self._occupants(node),
        )

    def _name(self, card: Card) -> str:
        told = text(card.device / "product_name")
        device = (text(card.device / "device") or "").removeprefix("0x")
        return told or pci_name(self._roots, "1002", device) or f"AMD GPU {device}".strip()

    def _occupants(self, node: _Node) -> tuple[DeviceProcess, ...] | UnsetType:
        """KFD has a folder for each process that opened it, with its memory on each GPU."""
        base = self._roots.sys / "class" / "kfd" / "kfd" / "proc"
        if not base.is_dir():
            return UNSET
        found = []
        for folder in listing(base):
            used = number(folder / f"vram_{node.gpu_id}")
            queues = [text(it / "gpuid") for it in listing(folder / "queues")]
            if folder.name.isdecimal() and (used or str(node.gpu_id) in queues):
                name = text(self._roots.proc / folder.name / "comm")
                found.append(DeviceProcess(pid=int(folder.name), memory_bytes=used, name=name))
        return tuple(found)


def _related(device: AcceleratorInfo, links: Mapping[DeviceId, DeviceLink]) -> AcceleratorInfo:
    if device.topology is UNSET:
        return device
    return replace(device, topology=replace(device.topology, links=dict(links)))


def _is_id(unique: str) -> bool:
    """Cards without one have an empty file, or none, or zeros."""
    return bool(_UNIQUE.fullmatch(unique)) and int(unique, 16) != 0


def _kfd(roots: Roots) -> dict[str, _Node] | None:
    """The GPUs that can compute by their addresses; ``None`` where KFD itself is not there."""
    base = roots.sys / "class" / "kfd" / "kfd" / "topology" / "nodes"
    if not base.is_dir():
        return None
    found: dict[str, _Node] = {}
    for folder in listing(base):
        gpu_id = number(folder / "gpu_id")
        if gpu_id and folder.name.isdecimal():
            facts = [_properties(it / "properties") for it in listing(folder / "io_links")]
            linked = (it.get("node_to", -1) for it in facts if it.get("type") == _IO_LINK_XGMI)
            own = _properties(folder / "properties")
            node = _Node(gpu_id, int(folder.name), own, frozenset(linked))
            found.setdefault(node.address, node)
    return found


def _properties(path: Path) -> dict[str, int]:
    words = (line.split() for line in (text(path) or "").splitlines())
    return {it[0]: int(it[1]) for it in words if len(it) == 2 and it[1].isdecimal()}
