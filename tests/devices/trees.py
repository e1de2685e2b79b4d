"""Hosts that are made up: files of sysfs and procfs under a folder of the test's."""

from collections.abc import Mapping
from pathlib import Path

from supervisor.devices.roots import Roots

Tree = Mapping[str, str]
"""A path to what it holds; ``-> PATH`` is a link (relative to the root), ``!`` cannot be read."""


def roots(folder: Path, tree: Tree = {}) -> Roots:  # noqa: B006 - it is not changed
    """The roots of a host with these files, named as on a real one (``sys/...``, ``proc/...``)."""
    for name, held in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if held.startswith("-> "):
            (folder / held[3:]).mkdir(parents=True, exist_ok=True)
            path.symlink_to(folder / held[3:])
        elif held == "!":
            path.mkdir()  # reading it fails, even for root
        else:
            path.write_text(held + "\n")
    return Roots.under(folder)


def card(at: int, address: str, files: Tree, *, driver: str) -> dict[str, str]:
    """A graphics card as the kernel lists it."""
    device = f"sys/devices/pci0000:00/{address}"
    return {
        f"sys/class/drm/card{at}/device": f"-> {device}",
        f"{device}/driver": f"-> sys/bus/pci/drivers/{driver}",
        f"{device}/drm/card{at}/dev": "226:0",
        f"{device}/drm/renderD{128 + at}/dev": "226:128",
        f"sys/class/drm/card{at}-DP-1/status": "connected",
        **{f"{device}/{name}": held for name, held in files.items()},
    }
