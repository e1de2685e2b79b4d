"""Every temperature of the host, and whose it is by the name of the driver that tells it."""

import re
from collections.abc import Iterator
from pathlib import Path

from supervisor.contracts.device import ThermalInfo, ThermalSource
from supervisor.devices.probe import ProbeAnswer, within
from supervisor.devices.roots import Roots, listing, scaled, text

# What is neither is the chassis: disks, memory, network, board, batteries.
_GPU = frozenset({"amdgpu", "radeon", "nouveau", "i915", "xe", "nvidia"})
_CPU = frozenset(
    {
        *("coretemp", "k10temp", "k8temp", "fam15h_power", "zenpower", "via_cputemp"),
        *("cpu_thermal", "x86_pkg_temp", "soc_thermal", "scpi_sensors", "macsmc_hwmon"),
    }
)
_GPU_ZONE, _CPU_ZONE = re.compile(r"gpu", re.IGNORECASE), re.compile(r"cpu|soc|pkg", re.IGNORECASE)
_INPUT = re.compile(r"temp([0-9]+)_input")


class SensorProbe:
    """The kernel's hardware monitors, and the thermal zones that are not among them."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def sample(self) -> ProbeAnswer:
        monitors = listing(self._roots.sys / "class" / "hwmon", "hwmon*")
        zones = listing(self._roots.sys / "class" / "thermal", "thermal_zone*")
        found = [it for monitor in monitors for it in _monitor(monitor)]
        found += [it for zone in zones for it in _zone(zone)]
        return ProbeAnswer(thermals=tuple(found))


def source_of(name: str) -> ThermalSource:
    """By a driver's name, or by the kind of a zone."""
    if name in _GPU or _GPU_ZONE.search(name):
        return "gpu"
    return "cpu" if name in _CPU or _CPU_ZONE.search(name) else "chassis"


def _monitor(folder: Path) -> Iterator[ThermalInfo]:
    name = text(folder / "name") or folder.name
    for path in listing(folder, "temp*_input"):
        celsius = _degrees(path)
        if celsius is not None and (numbered := _INPUT.fullmatch(path.name)):
            label = text(folder / f"temp{numbered[1]}_label") or f"temp{numbered[1]}"
            yield ThermalInfo(label=f"{name} {label}", celsius=celsius, source=source_of(name))


def _zone(folder: Path) -> Iterator[ThermalInfo]:
    """A zone that is a hardware monitor too has a folder for it, and was told of above."""
    kind, celsius = text(folder / "type"), _degrees(folder / "temp")
    if kind is not None and celsius is not None and not listing(folder, "hwmon*"):
        yield ThermalInfo(label=kind, celsius=celsius, source=source_of(kind))


def _degrees(path: Path) -> float | None:
    # Sensors that are wired to nothing say 0, -128, or 255 and the like.
    value = within(scaled(path, 1000), -40, 150)
    return value or None
