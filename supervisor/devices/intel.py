"""Intel devices by sysfs, under either of its drivers, xe and i915.

The two name things differently, and neither tells how much of a card's memory is used: much of
this stays unknown on most hosts, which is the truth about them.
"""

from supervisor.contracts.device import AcceleratorInfo
from supervisor.devices.drm import Card, cards, degrees, pci_name, watts
from supervisor.devices.probe import ProbeAnswer, answered, within
from supervisor.devices.roots import Roots, listing, number, text

VENDOR = "0x8086"
INTEGRATED = "0000:00:02.0"
"""Where the GPU of an Intel processor always is."""
_MOST_BYTES = 1 << 48


class IntelProbe:
    """Every card that one of the two drivers has."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def sample(self) -> ProbeAnswer:
        found = [
            self._read(at, card)
            for at, card in enumerate(cards(self._roots, VENDOR))
            if card.driver in ("xe", "i915")
        ]
        if not found:
            return ProbeAnswer(state="absent", reason="no Intel card under xe or i915")
        return ProbeAnswer(
            accelerators=tuple(found),
            capabilities=answered(found),
            host_memory=tuple(it.id for it in found if it.unified_memory),
        )

    def _read(self, at: int, card: Card) -> AcceleratorInfo:
        device = (text(card.device / "device") or "").removeprefix("0x")
        integrated = card.address == INTEGRATED
        return AcceleratorInfo(
            id=f"intel:{card.address}",
            index=at,
            vendor="intel",
            name=pci_name(self._roots, "8086", device) or f"Intel GPU {device}".strip(),
            accelerator="xpu",
            memory_total_bytes=None if integrated else _memory(card),
            memory_used_bytes=None,
            unified_memory=integrated,
            utilization_pct=None,
            # xe counts from the package's sensor on, i915 has one.
            temperature_c=degrees(card.hwmon, "temp1_input", "temp2_input"),
            power_watts=None,
            power_limit_watts=watts(card.hwmon, "power1_max", "power2_max", "power1_cap"),
            driver=card.driver,
            access=card.access(self._roots),
            topology=card.topology,
        )


def _memory(card: Card) -> int | None:
    """Of all tiles together (xe), or as i915 writes it where it does at all."""
    tiles = [number(it / "physical_vram_size_bytes") for it in listing(card.device, "tile*")]
    told = sum(it for it in tiles if it) or number(card.path / "lmem_total_bytes")
    size = within(told, 1, _MOST_BYTES)
    return None if size is None else int(size)
