"""NVIDIA's integrated GPUs (Jetson) by sysfs: what NVML does not tell of them, or all there is.

NVML is missing on older Jetsons, and on newer ones says success with zeros. Load is in thousandths,
temperatures in thousandths of a degree.
"""

from pathlib import Path

from supervisor.contracts.device import AcceleratorInfo
from supervisor.devices.probe import within
from supervisor.devices.roots import Roots, listing, scaled, text

TEGRA_DEVICE = "tegra:0"
"""There is one GPU on a Jetson, and without NVML it has no id of its own."""

_LOADS = ("devices/gpu.0", "devices/platform/gpu.0")
_BUSES = ("devices/platform", "devices/platform/bus@0", "class/devfreq")


def is_tegra(roots: Roots) -> bool:
    """By the device tree, or where that is hidden by the GPU's own node."""
    compatible = text(roots.proc / "device-tree" / "compatible") or ""
    return "nvidia,tegra" in compatible or _load_file(roots) is not None


def tegra_gpu(roots: Roots) -> AcceleratorInfo | None:
    """The GPU as sysfs shows it; its memory is the host's."""
    if not is_tegra(roots):
        return None
    model = text(roots.proc / "device-tree" / "model") or "NVIDIA Tegra"
    return AcceleratorInfo(
        id=TEGRA_DEVICE,
        index=0,
        vendor="nvidia",
        name=model,
        accelerator="cuda",
        memory_total_bytes=None,
        memory_used_bytes=None,
        unified_memory=True,
        utilization_pct=tegra_load(roots),
        temperature_c=tegra_temperature(roots),
        power_watts=None,
        power_limit_watts=None,
        driver=text(roots.sys / "module" / "nvgpu" / "version"),
    )


def tegra_load(roots: Roots) -> float | None:
    """Percent."""
    found = _load_file(roots)
    return None if found is None else within(scaled(found, 10), 0, 100)


def tegra_temperature(roots: Roots) -> float | None:
    """Of the thermal zone that is the GPU's: ``gpu-thermal``, ``GPU-therm``."""
    for zone in listing(roots.sys / "class" / "thermal", "thermal_zone*"):
        if (text(zone / "type") or "").lower().startswith("gpu"):
            return within(scaled(zone / "temp", 1000), -40, 150)
    return None


def _load_file(roots: Roots) -> Path | None:
    fixed = [roots.sys / place / "load" for place in _LOADS]
    found = [it for bus in _BUSES for it in listing(roots.sys / bus, "*.g*/load")]
    found += listing(roots.sys / "class" / "devfreq", "*.g*/device/load")
    return next((it for it in (*fixed, *found) if it.is_file()), None)
