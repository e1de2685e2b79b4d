"""Whose hardware could be here, told cheaply and without asking any driver.

A host where nothing of a vendor is to be seen needs no probe process for it.
"""

import os
from collections.abc import Callable, Mapping

from supervisor.contracts.host import Accelerator
from supervisor.devices.roots import Roots, listing, text
from supervisor.devices.tegra import is_tegra

NVML = "libnvidia-ml.so.1"
NVML_FOLDERS = (
    "/usr/lib/wsl/lib",  # WSL, whose loader does not look there by itself in every distribution
    "/usr/local/nvidia/lib64",  # GKE and others that mount the driver
    "/run/opengl-driver/lib",  # NixOS
)
EXPECTED: Mapping[str, Accelerator] = {"nvidia": "cuda", "amd": "rocm"}
"""A host with traces of these drivers is no CPU host, even while they do not answer."""


def vendors_here(roots: Roots, env: Mapping[str, str]) -> list[str]:
    """The probes that are worth asking."""
    return [vendor for vendor, seen in _TRACES.items() if seen(roots, env)]


def _nvidia(roots: Roots, env: Mapping[str, str]) -> bool:
    nodes = (roots.dev / "nvidiactl", roots.dev / "nvidia0", roots.proc / "driver" / "nvidia")
    folders = [*NVML_FOLDERS, *env.get("LD_LIBRARY_PATH", "").split(":")]
    return (
        any(it.exists() for it in nodes)
        or any(os.path.exists(f"{folder}/{NVML}") for folder in folders if folder)
        or is_tegra(roots)
    )


def _amd(roots: Roots, env: Mapping[str, str]) -> bool:
    return (roots.dev / "kfd").exists() or _has_card(roots, "0x1002")


def _intel(roots: Roots, env: Mapping[str, str]) -> bool:
    return _has_card(roots, "0x8086")


def _sensors(roots: Roots, env: Mapping[str, str]) -> bool:
    places = (("hwmon", "hwmon*"), ("thermal", "thermal_zone*"))
    return any(listing(roots.sys / "class" / kind, pattern) for kind, pattern in places)


def _has_card(roots: Roots, vendor: str) -> bool:
    cards = listing(roots.sys / "class" / "drm", "card*")
    return any(text(card / "device" / "vendor") == vendor for card in cards)


_TRACES: Mapping[str, Callable[[Roots, Mapping[str, str]], bool]] = {
    "nvidia": _nvidia,
    "amd": _amd,
    "intel": _intel,
    "sensors": _sensors,
}
