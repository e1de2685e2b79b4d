"""What the supervisor is asked and answers without changing anything."""

from collections import Counter
from collections.abc import Callable
from typing import Literal

import anyio

from supervisor.contracts.device import DeviceLeases, DeviceSnapshot
from supervisor.contracts.host import HostProfile
from supervisor.contracts.instance import InstanceView, Tombstone
from supervisor.contracts.rpc import (
    DetectReply,
    EngineListing,
    MetricsReply,
    SupervisorInfo,
    Unreadable,
)
from supervisor.engines.registry import engine_spec
from supervisor.lifecycle.api import Supervisor
from supervisor.lifecycle.booking import BookingDesk
from supervisor.lifecycle.catalog import device_leases, engine_listing
from supervisor.lifecycle.detecting import detect
from supervisor.lifecycle.errors import (
    HasEnded,
    LaunchRefused,
    NoSuchInstance,
    Unavailable,
    WaitTimedOut,
)
from supervisor.lifecycle.house import House
from supervisor.lifecycle.quarantine import Quarantine
from supervisor.lifecycle.redaction import Redactor
from supervisor.lifecycle.roster import Roster
from supervisor.lifecycle.scraping import scrape
from supervisor.lifecycle.strangers import Strangers
from supervisor.lifecycle.views import tombstone_view
from supervisor.patience import Overdue

LISTING_S = 10.0
"""To look for the engines' programs, which may lie on a mount that hangs."""


class Answers(Supervisor):
    """The part of this host's supervisor that reads its books."""

    def __init__(self, house: House, info: Callable[[dict[str, int]], SupervisorInfo]) -> None:
        self._house = house
        self._info = info
        self._quarantine = Quarantine(house)
        self._roster = Roster(self._quarantine, house.config.tombstones)
        self._strangers = Strangers(house, self._roster.here, self._quarantine)
        self._desk = BookingDesk(house, self._roster.records, self._quarantine, self._strangers)

    def list(self, *, ended: bool = False) -> tuple[InstanceView, ...]:
        return self._roster.views(ended=ended)

    def unreadable(self) -> tuple[Unreadable, ...]:
        return self._quarantine.unreadable()

    def get(self, name: str) -> InstanceView:
        found = self._roster.find(name)
        return tombstone_view(found) if isinstance(found, Tombstone) else found.view()

    def log_path(self, name: str) -> str:
        path = self.get(name).log_path
        if path is None:
            raise NoSuchInstance(f"{name} has no log: nothing of it was ever started")
        return path

    def redactor(self, name: str) -> Callable[[str], str]:
        found = self._roster.find(name)
        if isinstance(found, Tombstone):
            return Redactor.of_record(found.record).text
        return lambda text: found.redactor.text(text)  # noqa: PLW0108 - it changes

    def info(self) -> SupervisorInfo:
        now = self._house.now()
        return self._info(Counter(it.state(now) for it in self._roster.here()))

    async def profile(self) -> HostProfile:
        return await self._house.profile()

    async def snapshot(self) -> DeviceSnapshot:
        return await self._house.snapshot()

    async def leases(self) -> DeviceLeases:
        snapshot = await self._house.snapshot()
        foreign = await self._strangers.among(snapshot)
        return device_leases(
            snapshot, self._roster.records(), self._desk.withheld(snapshot), foreign
        )

    async def engines(self) -> EngineListing:
        host = await self._house.profile()
        path = self._house.inherited_env.get("PATH", "")
        try:
            return await self._house.looking.run(
                engine_listing, host, self._house.config, path, within_s=LISTING_S
            )
        except Overdue as error:
            raise Unavailable(f"the engines' programs cannot be looked for: {error}") from None

    async def detect(self) -> DetectReply:
        return await detect(self._roster.records())

    async def metrics(self, name: str) -> MetricsReply:
        found = self._roster.find(name)
        if isinstance(found, Tombstone):
            raise NoSuchInstance(f"{name} has ended and tells nothing more")
        spec = engine_spec(found.record.engine)
        return await scrape(found, spec.metrics if spec else {})

    def model_paths(self) -> tuple[str, ...]:
        """Of the models in use, for whoever watches their file systems."""
        told = (record.supervision for record in self._roster.records().values())
        return tuple(it.launch.model_path for it in told if it and it.launch.model_path)

    async def wait(
        self,
        name: str,
        *,
        nonce: str | None,
        until: Literal["ready", "exited"],
        timeout_ms: int | None,
    ) -> InstanceView:
        found = self._roster.find(name, nonce)
        if not isinstance(found, Tombstone):
            with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1_000) as limit:
                if until == "ready":
                    await found.until(lambda it: it.ready or it.over)
                else:
                    await found.until(lambda it: it.tombstone is not None)
            if limit.cancelled_caught:
                raise WaitTimedOut(f"{name} was not {until} within {timeout_ms} ms")
            view, never = found.view(), not found.ready
        else:
            view, never = tombstone_view(found), True
        if until == "ready" and (never or view.state == "exited"):
            if found.failure is not None:
                raise LaunchRefused(found.failure)
            raise HasEnded(f"{name} has ended; see `enginectl ps -a` and `enginectl logs`")
        return view
