"""Notices devices that go and come, and drivers that cannot be asked any more, and says so.

What is there at the first look is no news. A lost device frees nothing: its lease stays with the
record that holds it.
"""

from collections.abc import Mapping
from contextlib import suppress

import anyio

from supervisor.contracts.device import DeviceSnapshot
from supervisor.contracts.event import DeviceFound, DeviceLost, Warning_
from supervisor.contracts.host import DeviceId
from supervisor.devices.inventory import DevicesUnknown
from supervisor.lifecycle.house import House

FIRST_LOOK_S = 0.5
"""After the daemon's start, so that the first launch finds the drivers open already."""
WATCH_S = 15.0
HOSTS = ("sensors", "host")
"""Reports that are about no driver of devices."""
QUIET_S = 60.0
"""Where there is no driver that could have news, but one could still be loaded."""


class DeviceWatch:
    """Looks at every snapshot, and has one taken now and then where nobody else asks."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._known: frozenset[DeviceId] | None = None
        self._troubled: Mapping[str, str] = {}

    async def run(self) -> None:
        inventory = self._house.inventory
        inventory.on_round = self.compare
        if not inventory.watchable:
            return
        await anyio.sleep(FIRST_LOOK_S)
        while True:
            drivers = False
            with suppress(DevicesUnknown):  # who launches is told; there is nothing to compare
                snapshot = await inventory.snapshot()
                self._tell_troubles(snapshot)  # of a look that hangs, no round tells
                drivers = any(
                    it.state != "absent" for it in snapshot.probes if it.probe not in HOSTS
                )
            await anyio.sleep(WATCH_S if drivers else QUIET_S)

    def compare(self, snapshot: DeviceSnapshot) -> None:
        """Say what is new since the last one."""
        self._tell_troubles(snapshot)
        present = frozenset(device.id for device in snapshot.accelerators)
        known, self._known = self._known, present
        if known is None:
            return
        reasons = {lost.id: lost.reason for lost in snapshot.lost}
        for device in sorted(known - present):
            reason = reasons.get(device, "it is not listed any more")
            self._house.publish(DeviceLost(device=device, reason=reason))
        for device in sorted(present - known):
            self._house.publish(DeviceFound(device=device))

    def _tell_troubles(self, snapshot: DeviceSnapshot) -> None:
        """Once for as long as a driver is in the same trouble, however its reason is worded."""
        bad = {it.probe: it for it in snapshot.probes if it.state in ("failed", "stale")}
        for probe, report in bad.items():
            if self._troubled.get(probe) != report.state:
                detail = f"{probe}: {report.state}: {report.reason or 'no reason given'}"
                self._house.publish(Warning_(code="probe-failed", detail=detail))
        troubled = {probe: report.state for probe, report in bad.items()}
        self._troubled = troubled
