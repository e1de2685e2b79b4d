"""``devices``: what there is, how it stands, who has it, and the machine around it."""

import argparse
from collections.abc import Iterator

import msgspec

from supervisor.cli.context import Add, Context, show_raw
from supervisor.cli.exits import OK
from supervisor.cli.text import NOT_KNOWN, UNSUPPORTED, age, printable, say, size, table
from supervisor.contracts.device import (
    AcceleratorInfo,
    DeviceLease,
    DeviceLeases,
    DeviceProcess,
    DeviceSnapshot,
    LeaseHolder,
    TelemetryField,
    ThermalInfo,
    VolumeInfo,
)

_HEAD = ("DEVICE", "NAME", "STANDS", "MEMORY", "USED", "CLAIMED", "LOAD", "TEMP", "POWER")
_HOLDERS = ("HELD BY", "FOR")
_TELEMETRY = len(_HEAD) - 3
NOBODY = "-"


def add_commands(add: Add) -> None:
    add("devices", "Show the devices, who holds them, and the host.", run=list_devices)


def list_devices(context: Context, args: argparse.Namespace) -> int:
    snapshot = context.client.raw("device.snapshot")
    leases = context.client.raw("device.leases")
    if context.json:
        show_raw(snapshot)
        show_raw(leases)
        return OK
    shown = msgspec.json.decode(snapshot, type=DeviceSnapshot)
    say(_devices(shown, msgspec.json.decode(leases, type=DeviceLeases)))
    for line in _troubles(shown):
        say(printable(line))
    say("")
    say(printable(_host(shown)))
    if shown.storage:
        say("")
        head = ("VOLUME", "SIZE", "FREE", "FILE SYSTEM", "DRIVE")
        say(table(head, map(_volume, shown.storage)))
    if shown.thermals:
        say("")
        say(table(("TEMPERATURE", "NOW", "OF"), map(_thermal, shown.thermals)))
    return OK


def _devices(snapshot: DeviceSnapshot, listing: DeviceLeases) -> str:
    known = {device.id: device for device in snapshot.accelerators}
    leases = {lease.device: lease for lease in listing.leases}
    names = {lost.id: lost.name for lost in snapshot.lost}
    rows = []
    for name in dict.fromkeys((*known, *leases)):
        device = known.get(name)
        lease = leases.get(name, DeviceLease(device=name, holders=()))
        if device is None:
            shown = (names.get(name, NOBODY), "lost", *[NOBODY] * _TELEMETRY)
        else:
            shown = _telemetry(device, lease, snapshot.capabilities)
        rows.append((name, *shown, *_holders(lease)))
    return table((*_HEAD, *_HOLDERS), rows)


def _telemetry(
    device: AcceleratorInfo, lease: DeviceLease, capabilities: tuple[TelemetryField, ...]
) -> tuple[str, ...]:
    def reading(field: TelemetryField, value: float | None, unit: str) -> str:
        if field not in capabilities:
            return UNSUPPORTED
        return NOT_KNOWN if value is None else f"{value:.0f} {unit}"

    memory = "memory" in capabilities
    return (
        device.name,
        lease.standing,
        size(device.memory_total_bytes) if memory else UNSUPPORTED,
        size(device.memory_used_bytes) if memory else UNSUPPORTED,
        _claimed(lease),
        reading("utilization", device.utilization_pct, "%"),
        reading("temperature", device.temperature_c, "C"),
        reading("power", device.power_watts, "W"),
    )


def _claimed(lease: DeviceLease) -> str:
    """What holders claim of the budget they have together."""
    if not lease.claimed_bytes:
        return NOBODY
    return f"{size(lease.claimed_bytes)} of {size(lease.budget_bytes)}"


def _holders(lease: DeviceLease) -> tuple[str, str]:
    """Those of ours with since when; records that cannot be read; and strangers."""
    who = [
        *map(_holder, lease.holders),
        *(f"{it.name} (unreadable)" for it in lease.withheld),
        *map(_stranger, lease.foreign),
    ]
    return ", ".join(who) or NOBODY, ", ".join(age(it.since) for it in lease.holders) or NOBODY


def _holder(holder: LeaseHolder) -> str:
    claims = "" if not holder.memory_bytes else f" ({size(holder.memory_bytes)})"
    return f"{holder.name}{claims}"


def _stranger(process: DeviceProcess) -> str:
    uses = "" if process.memory_bytes is None else f", {size(process.memory_bytes)}"
    return f"foreign: {process.name or 'pid'} {process.pid}{uses}"


def _troubles(snapshot: DeviceSnapshot) -> Iterator[str]:
    """Why something may be missing above, or older than it looks."""
    for report in snapshot.probes:
        if report.state in ("failed", "stale"):
            yield f"{report.probe}: {report.state}: {report.reason or 'no reason given'}"
    for device in snapshot.accelerators:
        if device.age_ms:
            yield f"{device.id}: seen {device.age_ms / 1000:.0f} s ago"
    for lost in snapshot.lost:
        yield f"{lost.id}: lost {age(lost.since)} ago: {lost.reason}"


def _host(snapshot: DeviceSnapshot) -> str:
    host = snapshot.host
    used = host.memory_total_bytes - host.memory_available_bytes
    swap = NOT_KNOWN if host.swap_total_bytes is None else size(host.swap_total_bytes)
    return (
        f"{host.cpu_model}, {host.cpu_count} CPUs; memory {size(used)} of "
        f"{size(host.memory_total_bytes)} used, swap {swap}; {host.platform} {host.release}"
    )


def _volume(volume: VolumeInfo) -> tuple[str, ...]:
    spins = {True: " (rotational)", False: " (solid state)", None: ""}[volume.rotational]
    return (
        volume.mount,
        size(volume.total_bytes),
        size(volume.free_bytes),
        volume.filesystem or NOT_KNOWN,
        f"{volume.model or NOT_KNOWN}{spins}",
    )


def _thermal(thermal: ThermalInfo) -> tuple[str, ...]:
    return thermal.label, f"{thermal.celsius:.0f} C", thermal.source
