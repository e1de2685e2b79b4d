"""The devices that the daemon itself may use. What it inherited a mask for, it offers no more of.

A mask is read as the vendor's own runtime reads it: entries are ids (or the beginning of one) or
numbers, and it ends at the first entry that names nothing. Numbers count in PCI order, whatever
order the runtime would take: the fastest first is no order that can be known from outside.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import UNSET

from supervisor.contracts.device import AcceleratorInfo
from supervisor.contracts.host import Accelerator, DeviceId

_LEVEL_ZERO = re.compile(r"(?:level_zero|\*):(.*)", re.IGNORECASE)

# Read one after the other: each numbers what the one before has left. HIP takes CUDA's variable
# where its own is not set.
_MASKS: Mapping[Accelerator, tuple[tuple[str, ...], ...]] = {
    "cuda": (("CUDA_VISIBLE_DEVICES",),),
    "rocm": (
        ("ROCR_VISIBLE_DEVICES",),
        ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("GPU_DEVICE_ORDINAL",),
    ),
    "xpu": (("ZE_AFFINITY_MASK",), ("ONEAPI_DEVICE_SELECTOR",)),
}


def visible(devices: Iterable[AcceleratorInfo], env: Mapping[str, str]) -> list[AcceleratorInfo]:
    """Those of the devices that no mask in ``env`` hides. Slices go with their whole."""
    devices = list(devices)
    shown: set[DeviceId] = set()
    for kind in {device.accelerator for device in devices}:
        mine = [device for device in devices if device.accelerator == kind]
        for alternatives in _MASKS.get(kind, ()):
            name = next((it for it in alternatives if it in env), None)
            if name is not None:
                mine = _picked(_entries(name, env[name]), mine)
        shown |= {device.id for device in mine}
    return [device for device in devices if device.id in shown]


def _entries(name: str, value: str) -> list[str]:
    if name == "ONEAPI_DEVICE_SELECTOR":
        picks = [match[1] for it in value.split(";") if (match := _LEVEL_ZERO.fullmatch(it))]
        if any(pick in ("*", "gpu") for pick in picks):
            return ["*"]
        return [entry for pick in picks for entry in pick.split(",")]
    entries = [entry.strip() for entry in value.split(",")]
    if name == "ZE_AFFINITY_MASK":
        # "1.0" is a tile of a card, which is not leased apart from it. An empty mask hides nothing.
        return [entry.partition(".")[0] for entry in entries] if value.strip() else ["*"]
    return entries


def _picked(entries: Sequence[str], devices: list[AcceleratorInfo]) -> list[AcceleratorInfo]:
    wholes = [device for device in devices if _parent(device) is None]
    shown: dict[DeviceId, AcceleratorInfo] = {}
    for entry in entries:
        if entry == "*":
            return devices
        named = _named(entry, wholes, devices)
        if named is None:
            break
        shown[named.id] = named
    return [it for it in devices if it.id in shown or _parent(it) in shown]


def _named(
    entry: str, wholes: Sequence[AcceleratorInfo], devices: Sequence[AcceleratorInfo]
) -> AcceleratorInfo | None:
    if entry.isdecimal():
        return wholes[int(entry)] if int(entry) < len(wholes) else None
    if not entry:
        return None
    begins: Callable[[AcceleratorInfo], bool] = lambda it: any(  # noqa: E731
        name.lower().startswith(entry.lower()) for name in _names(it)
    )
    found = [device for device in devices if begins(device)]
    return found[0] if len(found) == 1 else None


def _names(device: AcceleratorInfo) -> tuple[str, ...]:
    """ROCm calls a card by its unique id as ``GPU-`` and sixteen digits."""
    unique = device.id.removeprefix("amd:")
    return (device.id,) if unique == device.id else (device.id, f"GPU-{unique:0>16}")


def _parent(device: AcceleratorInfo) -> DeviceId | None:
    return None if device.access is UNSET else device.access.parent
