"""What AMD's and Intel's probes have in common: graphics cards as the kernel lists them.

A card is known by its PCI address, never by its place in a listing: a card that is skipped must not
make the next one take its name.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.contracts.device import DeviceAccess, DeviceTopology
from supervisor.devices.probe import within
from supervisor.devices.roots import Roots, listing, number, scaled, text

_CARD = re.compile(r"card[0-9]+")
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NAMES = ("share/hwdata/pci.ids", "share/misc/pci.ids")


@dataclass(frozen=True, slots=True)
class Card:
    """A graphics card on the PCI bus."""

    path: Path
    """``/sys/class/drm/card0``"""
    device: Path
    """The PCI device's own folder."""
    address: str
    driver: str | None

    @property
    def hwmon(self) -> Path | None:
        """Its sensors."""
        return next(iter(listing(self.device / "hwmon", "hwmon*")), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its device files, the one for computing first."""
        names = [it.name for it in listing(self.device / "drm")]
        names.sort(key=lambda name: (not name.startswith("render"), name))
        return tuple(f"/dev/dri/{it}" for it in names if it.startswith(("render", "card")))

    def access(self, roots: Roots) -> DeviceAccess:
        """How it is reached; the groups are those of its files, in numbers."""
        groups = set()
        for node in self.nodes:
            try:
                groups.add((roots.dev / node.removeprefix("/dev/")).stat().st_gid)
            except OSError:  # a container that has the card's sysfs and not its files
                continue
        return DeviceAccess(
            pci_address=self.address, nodes=self.nodes, groups=tuple(sorted(groups))
        )

    @property
    def topology(self) -> DeviceTopology:
        node = number(self.device / "numa_node")
        return DeviceTopology(numa_node=None if node is None or node < 0 else node)


def cards(roots: Roots, vendor: str) -> Iterator[Card]:
    """All of a vendor's (``0x1002``), in the order of the bus."""
    found = {}
    for path in listing(roots.sys / "class" / "drm", "card*"):
        if _CARD.fullmatch(path.name) and text(path / "device" / "vendor") == vendor:
            device = (path / "device").resolve()
            if _ADDRESS.fullmatch(device.name):
                driver = (device / "driver").resolve().name
                known = driver if driver != "driver" else None
                found[device.name] = Card(path, device, device.name, known)
    yield from (found[address] for address in sorted(found))


def sensor(hwmon: Path | None, *names: str, unit: float, low: float, high: float) -> float | None:
    """The first of these readings that can be had and can be true."""
    if hwmon is None:
        return None
    values = (within(scaled(hwmon / name, unit), low, high) for name in names)
    return next((value for value in values if value is not None), None)


def degrees(hwmon: Path | None, *names: str) -> float | None:
    """Thousandths of a degree as degrees."""
    return sensor(hwmon, *names, unit=1000, low=-40, high=150)


def watts(hwmon: Path | None, *names: str) -> float | None:
    """Millionths of a watt as watts; a limit of zero is none."""
    return sensor(hwmon, *names, unit=1_000_000, low=0.001, high=10_000)


def pci_name(roots: Roots, vendor: str, device: str) -> str | None:
    """The card's name in the system's list of PCI ids, where it has one (hexadecimal, no 0x)."""
    for place in _NAMES:
        listed = text(roots.usr / place)
        if listed is None:
            continue
        ours = False
        for line in listed.splitlines():
            if line[:1] not in ("\t", "#", ""):
                ours = line.startswith(vendor)
            elif ours and line.startswith(f"\t{device}"):
                return line.split(None, 1)[1].strip()
    return None
