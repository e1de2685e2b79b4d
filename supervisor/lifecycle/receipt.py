"""The receipt for device memory: after a stop, does the driver still see anybody of the instance?

A process is gone before its memory is, where the driver takes its time or something went wrong in
it. Nobody waits long for that, and where the driver does not tell, nothing is said.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Literal

import anyio
from msgspec import UNSET

from supervisor.contracts.device import DeviceProcess, DeviceSnapshot
from supervisor.contracts.host import DeviceId
from supervisor.devices.inventory import DevicesUnknown, Inventory
from supervisor.launchers.base import CannotTellError, Running

DeviceMemory = Literal["returned", "left"]

LOOK_S = 1.0
"""For who belongs to the tree, before it goes."""
RECEIPT_S = 2.0
"""For the driver to let go of what its processes had."""
RECHECK_S = 0.1


async def tree_on_devices(
    inventory: Inventory, devices: Collection[DeviceId], running: Running
) -> frozenset[int]:
    """The tree's processes, to be asked for afterwards; none where no driver would tell of them."""
    latest = inventory.latest
    if latest is None or not _tells(latest, devices):
        return frozenset()
    try:
        with anyio.move_on_after(LOOK_S):
            return frozenset(member.pid for member in await running.members())
    except (CannotTellError, anyio.ClosedResourceError):
        return frozenset()
    return frozenset()


async def device_memory(
    inventory: Inventory, devices: Collection[DeviceId], tree: Collection[int]
) -> tuple[DeviceMemory | None, str]:
    """What the driver sees of a tree that is gone, and who it is; ``None`` where it cannot tell."""
    if not tree:
        return None, ""
    told: list[tuple[DeviceId, DeviceProcess]] | None = None
    with anyio.move_on_after(RECEIPT_S), suppress(DevicesUnknown):
        while True:
            snapshot = await inventory.snapshot(fresh=True)
            if not _tells(snapshot, devices):
                return None, ""
            told = [it for it in _occupants(snapshot, devices) if it[1].pid in tree]
            if not told:
                return "returned", ""
            await anyio.sleep(RECHECK_S)
    if told is None:
        return None, ""
    return "left", ", ".join(_say(device, process) for device, process in told)


def _tells(snapshot: DeviceSnapshot, devices: Collection[DeviceId]) -> bool:
    known = [it for it in snapshot.accelerators if it.id in devices]
    return bool(known) and all(it.processes is not UNSET and not it.age_ms for it in known)


def _occupants(
    snapshot: DeviceSnapshot, devices: Collection[DeviceId]
) -> Iterator[tuple[DeviceId, DeviceProcess]]:
    for device in snapshot.accelerators:
        if device.id in devices and device.processes:
            yield from ((device.id, process) for process in device.processes)


def _say(device: DeviceId, process: DeviceProcess) -> str:
    size = "an unknown size" if process.memory_bytes is None else f"{process.memory_bytes} bytes"
    return f"{process.name or 'pid'} {process.pid} ({size} of {device})"
