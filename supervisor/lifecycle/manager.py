"""The supervisor of this host: decides reservations, starts instances' tasks, answers for all.

A reservation is decided without a single wait: name, devices and port are checked against the
table and taken in one go on the event loop's thread. What makes it last is the instance's first
act, the write of its record; until that is on disk nobody is told about it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from secrets import token_hex

import anyio
import anyio.abc
import structlog
from anyio.abc import TaskStatus
from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.failure import (
    Cancelled,
    LaunchFailure,
)
from supervisor.contracts.instance import (
    InstanceView,
    LaunchParams,
    Tombstone,
)
from supervisor.contracts.rpc import (
    DrainReply,
    PinParams,
    PlanReply,
    ReleaseReply,
    ReloadReply,
    SupervisorInfo,
)
from supervisor.failures import to_event
from supervisor.lifecycle.answers import Answers
from supervisor.lifecycle.bounds import within_bounds
from supervisor.lifecycle.device_watch import DeviceWatch
from supervisor.lifecycle.ending import Command
from supervisor.lifecycle.errors import (
    CannotTell,
    LaunchRefused,
    LifecycleError,
    NotDone,
    PinnedInstance,
    Unavailable,
)
from supervisor.lifecycle.forgetting import Forgetting
from supervisor.lifecycle.house import House
from supervisor.lifecycle.inheritance import all_known, take_up, watch_quarantine
from supervisor.lifecycle.instance import Instance
from supervisor.lifecycle.nursery import Nursery
from supervisor.lifecycle.order import Order, resolve
from supervisor.lifecycle.pins import Pins, is_pin
from supervisor.lifecycle.planning import planned
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.records import watch_records
from supervisor.lifecycle.rounds import Rounds
from supervisor.lifecycle.views import tombstone_view
from supervisor.lifecycle.vouching import Vouching

log = structlog.get_logger(__name__)


class LocalSupervisor(Answers):
    """Engines of this host. ``serve`` must run for as long as anything else is called."""

    def __init__(
        self,
        house: House,
        info: Callable[[dict[str, int]], SupervisorInfo],
        reread: Callable[[], Awaitable[ReloadReply]] | None = None,
    ) -> None:
        """``reread`` takes over what changed in the configuration file, where there is one."""
        super().__init__(house, info)
        self._reread = reread
        self._forgetting = Forgetting(house.paths.log_dir, self._roster)
        self._nursery = Nursery(house)
        self._pins = Pins(house, self._desk, self._roster, self._ended)
        self._vouching = Vouching(house, self._desk, self._quarantine, self._strangers)
        self._leaving = False
        self._draining = 0

    # ── life of the daemon ───────────────────────────────────────────────────

    async def serve(self, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Take up what the state directory holds, then keep the instances' tasks until cancelled.

        Reports the number of instances taken up. Being cancelled detaches from every engine.
        """
        house, nursery, here = self._house, self._nursery, self._roster.here
        async with nursery.open():
            for instance in await take_up(
                house, self._roster, self._quarantine, self._desk, self._ended
            ):
                nursery.start(instance)
            taken_up = len(self._roster)
            nursery.keep("logs", house.logs.run)
            for kind, launcher in house.launchers.items():
                nursery.keep(f"{kind}-launcher", launcher.run)
            nursery.keep("quarantine", partial(watch_quarantine, self._quarantine, self._roster))
            nursery.keep("rounds", Rounds(here).run)
            nursery.keep("devices", DeviceWatch(house).run)
            nursery.keep("records", partial(watch_records, house.store, here))
            nursery.keep("forgotten-logs", self._forgetting.run)
            await all_known(self._roster)
            task_status.started(taken_up)
            for name, recipe in house.config.recipes.items():
                if recipe.autostart:
                    nursery.keep(f"autostart:{name}", partial(self._autostart, name))
            await anyio.sleep_forever()

    def leave(self) -> int:
        """Take no new work. Says how many engines will be left running."""
        self._leaving = True
        return len(self._roster)

    async def _autostart(self, name: str) -> None:
        """Launch a recipe that is to run whenever the daemon does.

        What an earlier daemon left of it may go on, or be dead and on its way out: then it is
        waited for. Whom somebody asked for anything meanwhile is left to them.
        """
        left = self._roster.get(name)
        if left is not None:
            await left.until(lambda it: it.tombstone is not None or it.goes_on or it.asked)
            if left.tombstone is None or left.asked:
                return
        try:
            await self.launch(LaunchParams(name=name, recipe=name, wait=False))
        except Exception as error:
            log.error("autostart failed", recipe=name, error=repr(error))

    def _ended(self, instance: Instance, tombstone: Tombstone) -> None:
        self._forgetting.forget(self._roster.entomb(instance, tombstone))

    # ── launch ───────────────────────────────────────────────────────────────

    async def launch(self, params: LaunchParams, *, bounded: bool = False) -> InstanceView:
        return await self._launch(params, None, bounded=bounded)

    async def _launch(
        self, params: LaunchParams, last_port: int | None, *, bounded: bool = False
    ) -> InstanceView:
        self._refuse_if_leaving()
        order = await self._ordered(params, last_port, bounded=bounded)
        order = await self._desk.spelled_out(order)
        nonce = token_hex(16)
        try:
            instance = await self._reserve(order, nonce)
        except Problem as problem:
            raise self._refused(problem.failure, order.name, nonce) from None
        self._nursery.start(instance)
        if params.wait is False:
            await instance.until(lambda it: it.reserved or it.over)
        else:
            await instance.until(lambda it: it.readies > 0 or it.over)
        return self._outcome(instance)

    async def _ordered(
        self, params: LaunchParams, last_port: int | None = None, *, bounded: bool
    ) -> Order:
        config = self._house.config  # the recipe that is looked at is the one that is launched
        if bounded:
            params = await within_bounds(params, config, self._house.looking)
        return resolve(params, config.recipes, last_port=last_port)

    def _refused(self, failure: LaunchFailure, name: str, nonce: str) -> LaunchRefused:
        """Before anything was done, which is told all the same."""
        self._house.publish(to_event(failure, instance=name, nonce=nonce, attempt=1, log_path=None))
        return LaunchRefused(failure)

    def _refuse_if_leaving(self) -> None:
        if self._leaving or self._draining:
            going_on = "stopping" if self._leaving else "being drained"
            raise Unavailable(f"the daemon is {going_on} and takes no new launches")

    def _outcome(self, instance: Instance) -> InstanceView:
        if instance.over and instance.failure is not None:
            raise LaunchRefused(instance.failure)
        return instance.view()

    async def _reserve(self, order: Order, nonce: str) -> Instance:
        """Everything up to the moment at which the name, the devices and the port are taken."""
        found = await self._desk.look(order)
        # From here to the return there is no wait: that makes the reservation one step.
        self._refuse_if_leaving()
        if self._roster.taken(order.name):
            raise Problem(self._roster.occupied(order.name))
        record, preparation = self._desk.book(order, nonce, found)
        instance = Instance(
            self._house,
            record,
            found.spec,
            self._ended,
            prepare=self._desk.again,
            preparation=preparation,
        )
        return self._roster.enter(instance)

    async def plan(self, params: LaunchParams, *, bounded: bool = False) -> PlanReply:
        order = await self._desk.spelled_out(await self._ordered(params, bounded=bounded))
        occupied = self._roster.occupied(order.name) if self._roster.taken(order.name) else None
        return await planned(self._house, self._desk, order, occupied)

    # ── the other verbs ──────────────────────────────────────────────────────

    async def stop(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        found = self._roster.find(name, nonce)
        if isinstance(found, Tombstone):
            return tombstone_view(found)
        return await self._command(found, Command("stop", grace_ms))

    async def cancel(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        found = self._roster.find(name, nonce)
        if isinstance(found, Tombstone):
            return tombstone_view(found)
        self._refuse_pin(found)
        if found.ready:
            return found.view()
        return await self._command(found, Command("cancel", grace_ms))

    async def _command(self, instance: Instance, command: Command) -> InstanceView:
        self._refuse_untouchable(instance)
        instance.order(command)
        await instance.until(lambda it: it.tombstone is not None or it.refusal is not None)
        if instance.tombstone is None and instance.refusal is not None:
            raise instance.refusal
        return instance.view()

    def _refuse_untouchable(self, instance: Instance) -> None:
        self._refuse_pin(instance)
        if instance.untouchable is not None:
            raise CannotTell(f"{instance.name} was not touched: {instance.untouchable}")

    def _refuse_pin(self, instance: Instance) -> None:
        if is_pin(instance.record):
            raise PinnedInstance(
                f"{instance.name} is a pinned hold; `enginectl release {instance.name}` ends it"
            )

    async def restart(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        found = self._roster.find(name, nonce)
        if not isinstance(found, Tombstone):
            self._refuse_untouchable(found)
            await self._refuse_in_vain(found)
            before = found.readies
            found.order(Command("restart", grace_ms))
            await found.until(
                lambda it: it.readies > before or it.over_for_good or it.refusal is not None
            )
            if found.refusal is not None:
                raise found.refusal
            if found.tombstone is None or not found.unheeded:
                if found.readies == before and found.failure is None:
                    raise LaunchRefused(Cancelled())  # a stop came in between, and won
                return self._outcome(found)
            found = found.tombstone  # its end had begun before it was asked to start again
        if found.record.supervision is UNSET:
            raise CannotTell(f"it is not known how {name} had been launched")
        again = replace(found.record.supervision.launch, wait=UNSET)
        return await self._launch(again, found.record.port)

    async def _refuse_in_vain(self, instance: Instance) -> None:
        """A restart that could not be prepared would only be a stop."""
        try:
            await self._desk.again(instance.record)
        except Problem as problem:
            raise self._refused(problem.failure, instance.name, token_hex(16)) from None

    async def pin(self, params: PinParams) -> InstanceView:
        self._refuse_if_leaving()
        return await self._pins.pin(params)

    async def release(self, name: str, *, force: bool = False) -> ReleaseReply:
        held = self._roster.get(name)
        if held is not None and is_pin(held.record):
            return await self._pins.release(held)
        if held is not None:
            self._refuse_untouchable(held)
            return await self._vouching.take_the_word(held, force=force)
        return await self._vouching.release(name, force=force)

    async def reload(self) -> ReloadReply:
        if self._reread is None:
            raise NotDone("there is no configuration file to read")
        return await self._reread()

    async def drain(self, *, grace_ms: int | None) -> DrainReply:
        stopped: list[str] = []
        failed: dict[str, str] = {}

        async def stop(name: str) -> None:
            try:
                await self.stop(name, nonce=None, grace_ms=grace_ms)
                stopped.append(name)
            except LifecycleError as error:
                failed[name] = str(error)

        self._draining += 1
        try:
            async with anyio.create_task_group() as stops:
                for name in [it.name for it in self._roster.here() if not is_pin(it.record)]:
                    stops.start_soon(stop, name)
        finally:
            self._draining -= 1
        return DrainReply(stopped=tuple(sorted(stopped)), failed=failed)
