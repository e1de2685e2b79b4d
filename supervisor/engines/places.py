"""Devices by number, for engine versions that read no ids in a mask (vLLM before 0.24 makes each an
integer). A number means something only in a stated order, which is that of the PCI bus.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from supervisor.contracts.device import AcceleratorInfo
from supervisor.contracts.engine import LaunchPlan
from supervisor.contracts.host import DeviceId


def mask_by_places(plan: LaunchPlan, places: Mapping[DeviceId, int]) -> LaunchPlan:
    """The plan with its CUDA mask in places of the PCI order, which it asks CUDA for.

    Where one id has no place, such as a slice's, all stay ids: CUDA cuts a mask of both kinds off
    at the first that it does not understand.
    """
    mask = plan.env.get("CUDA_VISIBLE_DEVICES", "")
    found = [places.get(device) for device in mask.split(",")]
    if not mask or None in found:
        return plan
    numbers = ",".join(map(str, found))
    # Whatever order a launch likes: in another one these numbers are other cards.
    order = {"CUDA_VISIBLE_DEVICES": numbers, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return replace(plan, env={**plan.env, **order})


def pci_places(devices: Sequence[AcceleratorInfo]) -> dict[DeviceId, int]:
    """The number that each CUDA card has under ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; none at all where
    a card does not tell its address, or is seen by its slices only, for that could shift the rest.
    """
    whole = [it for it in devices if it.accelerator == "cuda" and not _is_slice(it)]
    told = {it.id: it.access.place for it in whole if it.access and it.access.place is not None}
    if len(told) == len(whole):
        return told  # which counts those that a mask of the daemon's own hides
    cards: dict[DeviceId, str | None] = {}
    for device in devices:
        if device.accelerator == "cuda":
            access = device.access or None
            if access is not None and access.parent is not None:
                cards.setdefault(access.parent, None)
            else:
                cards[device.id] = access.pci_address if access is not None else None
    if None in cards.values():
        return {}
    ordered = sorted(cards, key=lambda card: cards[card] or "")
    return {card: place for place, card in enumerate(ordered)}


def _is_slice(device: AcceleratorInfo) -> bool:
    return bool(device.access and device.access.parent is not None)


def is_older(version: str | None, since: str | None) -> bool:
    """Whether a version is known to come before another; what is not known counts as new."""
    if version is None or since is None:
        return False
    numbers = _numbers(version)
    return bool(numbers) and numbers < _numbers(since)


def _numbers(version: str) -> tuple[int, ...]:
    """The release segment: a pre-release counts as its release, which it already behaves like."""
    release = re.split(r"[^0-9.]", version, maxsplit=1)[0]
    return tuple(int(number) for number in release.split(".") if number)
