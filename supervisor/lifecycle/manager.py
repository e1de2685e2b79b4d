"""The supervisor of this host: decides reservations, starts instances' tasks, answers for all.

A reservation is decided without a single wait: name, devices and port are checked against the
table and taken in one go on the event loop's thread. What makes it last is the instance's first
act, the write of its record; until that is on disk nobody is told about it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import Literal

import anyio
import anyio.abc
import anyio.to_thread
import structlog
from anyio.abc import TaskStatus
from msgspec import UNSET
from msgspec.structs import replace

from supervisor import __version__
from supervisor.contracts.device import DeviceLeases, DeviceSnapshot
from supervisor.contracts.event import Released, SupervisorStarted, Warning_
from supervisor.contracts.failure import (
    AlreadyRunning,
    Cancelled,
    LaunchFailure,
)
from supervisor.contracts.host import HostProfile
from supervisor.contracts.instance import (
    InstanceRecord,
    InstanceView,
    LaunchParams,
    Tombstone,
)
from supervisor.contracts.rpc import (
    DetectReply,
    DrainReply,
    EngineListing,
    MetricsReply,
    PinParams,
    PlanReply,
    ReleaseReply,
    ReloadReply,
    SupervisorInfo,
)
from supervisor.engines.registry import engine_spec
from supervisor.failures import sentence, to_event
from supervisor.instances.durable import StoreError
from supervisor.launchers.base import Stray
from supervisor.lifecycle.api import Supervisor
from supervisor.lifecycle.booking import BookingDesk
from supervisor.lifecycle.catalog import device_leases, engine_listing
from supervisor.lifecycle.detecting import detect
from supervisor.lifecycle.device_watch import DeviceWatch
from supervisor.lifecycle.ending import Command
from supervisor.lifecycle.errors import (
    CannotTell,
    LaunchRefused,
    LifecycleError,
    NoSuchInstance,
    NotOurs,
    PinnedInstance,
    Unavailable,
    WaitTimedOut,
)
from supervisor.lifecycle.fitting import refuse_misfit
from supervisor.lifecycle.guard import keep_going
from supervisor.lifecycle.house import House
from supervisor.lifecycle.instance import Instance
from supervisor.lifecycle.logfolders import forget_logs
from supervisor.lifecycle.order import Order, resolve
from supervisor.lifecycle.pins import UNTOUCHABLE, Pins, is_pin
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.prepare import Sought
from supervisor.lifecycle.quarantine import Quarantine
from supervisor.lifecycle.records import watch_records
from supervisor.lifecycle.redaction import Redactor
from supervisor.lifecycle.rounds import Rounds
from supervisor.lifecycle.scraping import scrape
from supervisor.lifecycle.strangers import Strangers
from supervisor.lifecycle.told import History
from supervisor.lifecycle.views import tombstone_view

FIRST_LOOK_S = 5.0
"""How long the daemon's start waits to learn who of its engines lives."""

log = structlog.get_logger(__name__)


class LocalSupervisor(Supervisor):
    """Engines of this host. ``serve`` must run for as long as anything else is called."""

    def __init__(
        self,
        house: House,
        info: Callable[[dict[str, int]], SupervisorInfo],
        reread: Callable[[], Awaitable[ReloadReply]] | None = None,
    ) -> None:
        """``reread`` takes over what changed in the configuration file, where there is one."""
        self._house = house
        self._info = info
        self._reread = reread
        self._instances: dict[str, Instance] = {}
        self._tombstones: dict[str, Tombstone] = {}
        self._forgotten: list[str] = []
        self._news = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._quarantine = Quarantine(house)
        self._strangers = Strangers(house, self._instances.values, self._quarantine)
        self._desk = BookingDesk(house, self._records, self._quarantine, self._strangers)
        self._pins = Pins(house, self._desk, self._taken, self._enter_pin, self._instances.pop)
        self._leaving = False
        self._draining = 0

    # ── life of the daemon ───────────────────────────────────────────────────

    async def serve(self, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Take up what the state directory holds, then keep the instances' tasks until cancelled.

        Reports the number of instances taken up. Being cancelled detaches from every engine.
        """
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            rounds = Rounds(self._all)
            taken_up = await self._take_up()
            self._keep_house("logs", self._house.logs.run)
            for kind, launcher in self._house.launchers.items():
                self._keep_house(f"{kind}-launcher", launcher.run)
            self._keep_house("quarantine", self._quarantine.watch)
            self._keep_house("rounds", rounds.run)
            self._keep_house("devices", DeviceWatch(self._house).run)
            self._keep_house("records", partial(watch_records, self._house.store, self._all))
            self._keep_house("forgotten-logs", self._forget_logs)
            await self._known()
            task_status.started(taken_up)
            await self._autostart()
            await anyio.sleep_forever()

    def leave(self) -> int:
        """Take no new work. Says how many engines will be left running."""
        self._leaving = True
        return len(self._instances)

    async def _take_up(self) -> int:
        house = self._house
        loaded = await anyio.to_thread.run_sync(house.store.load)
        self._tombstones = loaded.tombstones
        house.publish(
            SupervisorStarted(
                version=__version__,
                boot_id=house.clock.boot_id,
                supervisor_id=house.supervisor_id,
                found=len(loaded.records),
            )
        )
        for path in loaded.moved:
            detail = f"what lay in the place of a folder of ours is now {path}"
            house.publish(Warning_(code="moved-aside", detail=detail))
        self._quarantine.admit(loaded.quarantined, await self._strays(loaded.records))
        with anyio.move_on_after(FIRST_LOOK_S):
            await self._quarantine.look()
        said = History(house.bus.history)
        for name, record in loaded.records.items():
            spec = engine_spec(record.engine)
            untouchable = self._untouchable(record, newer=name in loaded.read_only)
            instance = Instance(
                house,
                record,
                spec,
                self._ended,
                prepare=self._desk.again,
                told=said.of(record),
                untouchable=untouchable,
            )
            self._instances[name] = instance
            if untouchable is None:
                self._start(instance)
            elif not is_pin(record):
                house.publish(Warning_(instance=name, code="record-newer", detail=untouchable))
        return len(loaded.records)

    def _untouchable(self, record: InstanceRecord, *, newer: bool) -> str | None:
        """Why a record is kept as it is, with its lease, and nobody acts on it."""
        if newer:
            return "a newer version wrote this record"
        if is_pin(record):
            return UNTOUCHABLE
        if record.supervision is UNSET:
            return "the record does not say how it was launched"
        if record.ref is not None and self._house.launcher_of(record.ref) is None:
            return f"this daemon has no launcher for a {record.runtime} handle"
        return None

    async def _known(self) -> None:
        """Until it is known of every instance whether its engine lives, but not for ever."""
        with anyio.move_on_after(FIRST_LOOK_S):
            for instance in tuple(self._instances.values()):
                await instance.until(lambda it: it.known)

    async def _strays(self, records: Mapping[str, InstanceRecord]) -> list[Stray]:
        told = (it.supervision.cgroup for it in records.values() if it.supervision)
        known = frozenset(cgroup for cgroup in told if cgroup)
        launchers = self._house.launchers.values()
        return [stray for launcher in launchers for stray in await launcher.strays(known)]

    async def _autostart(self) -> None:
        """Launch the recipes that are to run whenever the daemon does."""
        for name, recipe in self._house.config.recipes.items():
            if recipe.autostart and name not in self._instances:
                try:
                    await self.launch(LaunchParams(name=name, recipe=name, wait=False))
                except Exception as error:  # one recipe must not keep the others from starting
                    log.error("autostart failed", recipe=name, error=repr(error))

    def _keep_house(self, task: str, run: Callable[[], Awaitable[object]]) -> None:
        assert self._tasks is not None, "serve() runs first"
        self._tasks.start_soon(keep_going, self._house, task, run, name=task)

    def _start(self, instance: Instance) -> None:
        assert self._tasks is not None, "serve() runs first"
        self._tasks.start_soon(self._keep, instance, name=f"instance:{instance.name}")

    async def _keep(self, instance: Instance) -> None:
        """Run one instance's task to its end; a defect in it is news, and touches no other."""
        try:
            await keep_going(
                self._house,
                f"instance:{instance.name}",
                instance.run,
                instance=instance.name,
                nonce=lambda: instance.record.nonce,
                mask=lambda text: instance.redactor.text(text),  # noqa: PLW0108 - it changes
                between=instance.rewind,
            )
        except BaseException:
            instance.let_go()
            raise

    def _ended(self, instance: Instance, tombstone: Tombstone) -> None:
        if self._instances.get(instance.name) is instance:
            del self._instances[instance.name]
        self._tombstones.pop(instance.name, None)
        self._tombstones[instance.name] = tombstone
        while len(self._tombstones) > self._house.config.tombstones:
            forgotten = next(iter(self._tombstones))
            del self._tombstones[forgotten]
            self._forgotten.append(forgotten)
            self._news.set()

    async def _forget_logs(self) -> None:
        """Of each instance whose tombstone has made room, unless its name has another bearer."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._forgotten:
                name = self._forgotten.pop(0)
                if self._taken(name) or name in self._tombstones:
                    continue
                with suppress(OSError):  # what is left is in nobody's way
                    await anyio.to_thread.run_sync(
                        forget_logs, self._house.paths.log_dir, name, abandon_on_cancel=True
                    )

    # ── launch ───────────────────────────────────────────────────────────────

    async def launch(self, params: LaunchParams) -> InstanceView:
        return await self._launch(params, None)

    async def _launch(self, params: LaunchParams, last_port: int | None) -> InstanceView:
        self._refuse_if_leaving()
        order = resolve(params, self._house.config.recipes, last_port=last_port)
        nonce = token_hex(16)
        try:
            instance = await self._reserve(order, nonce)
        except Problem as problem:
            self._house.publish(
                to_event(
                    problem.failure, instance=order.name, nonce=nonce, attempt=1, log_path=None
                )
            )
            raise LaunchRefused(problem.failure) from None
        self._start(instance)
        if params.wait is False:
            await instance.until(lambda it: it.reserved or it.over)
        else:
            await instance.until(lambda it: it.readies > 0 or it.over)
        return self._outcome(instance)

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
        if self._taken(order.name):
            raise Problem(AlreadyRunning(name=order.name))
        record, preparation = self._desk.book(order, nonce, found)
        instance = Instance(
            self._house,
            record,
            found.spec,
            self._ended,
            prepare=self._desk.again,
            preparation=preparation,
        )
        self._instances[order.name] = instance
        self._tombstones.pop(order.name, None)
        return instance

    # ── the other verbs ──────────────────────────────────────────────────────

    async def stop(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        found = self._find(name, nonce)
        if isinstance(found, Tombstone):
            return tombstone_view(found)
        return await self._command(found, Command("stop", grace_ms))

    async def cancel(self, name: str, *, nonce: str | None, grace_ms: int | None) -> InstanceView:
        found = self._find(name, nonce)
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
        found = self._find(name, nonce)
        if isinstance(found, Tombstone):
            if found.record.supervision is UNSET:
                raise CannotTell(f"it is not known how {name} had been launched")
            again = replace(found.record.supervision.launch, wait=UNSET)
            return await self._launch(again, found.record.port)
        self._refuse_untouchable(found)
        before = found.readies
        found.order(Command("restart", grace_ms))
        await found.until(lambda it: it.readies > before or it.over or it.refusal is not None)
        if found.refusal is not None:
            raise found.refusal
        if found.readies == before and found.failure is None:
            raise LaunchRefused(Cancelled())  # a stop came in between, and won
        return self._outcome(found)

    async def pin(self, params: PinParams) -> InstanceView:
        self._refuse_if_leaving()
        return await self._pins.pin(params)

    def _enter_pin(self, record: InstanceRecord) -> Instance:
        pin = Instance(
            self._house,
            record,
            None,
            self._ended,
            prepare=self._desk.again,
            untouchable=UNTOUCHABLE,
        )
        self._instances[record.name] = pin
        self._tombstones.pop(record.name, None)
        return pin

    async def release(self, name: str) -> ReleaseReply:
        held = self._instances.get(name)
        if held is not None and is_pin(held.record):
            return await self._pins.release(held)
        if held is not None:
            raise NotOurs(f"{name} is a running instance, and no hold; stop it instead")
        if name not in self._quarantine:
            raise NoSuchInstance(f"there is no hold named {name!r}")
        try:
            devices = await self._quarantine.release(name)
        except StoreError as error:
            raise Unavailable(f"the file of {name} could not be removed: {error}") from error
        self._house.publish(Released(instance=name, devices=devices))
        return ReleaseReply(devices=devices)

    async def reload(self) -> ReloadReply:
        if self._reread is None:
            raise Unavailable("there is no configuration file to read")
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
                for name in [it.name for it in self._instances.values() if not is_pin(it.record)]:
                    stops.start_soon(stop, name)
        finally:
            self._draining -= 1
        return DrainReply(stopped=tuple(sorted(stopped)), failed=failed)

    async def wait(
        self,
        name: str,
        *,
        nonce: str | None,
        until: Literal["ready", "exited"],
        timeout_ms: int | None,
    ) -> InstanceView:
        found = self._find(name, nonce)
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
            raise NoSuchInstance(f"{name} has ended; see `enginectl ps -a` and `enginectl logs`")
        return view

    # ── questions ────────────────────────────────────────────────────────────

    def list(self, *, ended: bool = False) -> tuple[InstanceView, ...]:
        views = [instance.view() for instance in self._instances.values()]
        if ended:
            gone = (t for name, t in self._tombstones.items() if name not in self._instances)
            views += [tombstone_view(tombstone) for tombstone in gone]
        return tuple(sorted(views, key=lambda view: view.record.name))

    def get(self, name: str) -> InstanceView:
        found = self._find(name, None)
        return tombstone_view(found) if isinstance(found, Tombstone) else found.view()

    def log_path(self, name: str) -> str:
        path = self.get(name).log_path
        if path is None:
            raise NoSuchInstance(f"{name} has no log: nothing of it was ever started")
        return path

    def redactor(self, name: str) -> Callable[[str], str]:
        return Redactor.of_record(self._find(name, None).record).text

    def info(self) -> SupervisorInfo:
        now = self._house.now()
        return self._info(Counter(it.state(now) for it in self._instances.values()))

    async def profile(self) -> HostProfile:
        return await self._house.inventory.profile()

    async def snapshot(self) -> DeviceSnapshot:
        return await self._house.inventory.snapshot()

    async def leases(self) -> DeviceLeases:
        snapshot = await self._house.inventory.snapshot()
        foreign = await self._strangers.among(snapshot)
        return device_leases(snapshot, self._records(), self._desk.withheld(snapshot), foreign)

    async def engines(self) -> EngineListing:
        host = await self._house.inventory.profile()
        return await anyio.to_thread.run_sync(
            engine_listing, host, self._house.config, self._house.inherited_env.get("PATH", "")
        )

    async def detect(self) -> DetectReply:
        return await detect(self._records())

    async def metrics(self, name: str) -> MetricsReply:
        found = self._find(name, None)
        if isinstance(found, Tombstone):
            raise NoSuchInstance(f"{name} has ended and tells nothing more")
        spec = engine_spec(found.record.engine)
        return await scrape(found, spec.metrics if spec else {})

    async def plan(self, params: LaunchParams) -> PlanReply:
        order = resolve(params, self._house.config.recipes)
        try:
            found = await self._desk.look(order)
        except Problem as problem:
            raise LaunchRefused(problem.failure) from None
        preparation = self._desk.preparation(order, found)
        refusal: LaunchFailure | None = None
        devices = self._desk.present(found, order.devices or ())
        port = order.port or found.spec.default_port
        try:
            if order.name in self._instances:
                raise Problem(AlreadyRunning(name=order.name))
            devices = self._desk.devices(order, found).devices
            port = self._desk.port(order, found)
        except Problem as problem:
            refusal = problem.failure
        binary, version = order.binary or found.spec.default_binary, None
        model = order.model_path
        try:
            binary, version = await preparation.binary()
            model = await preparation.model()
        except Problem as problem:
            refusal = refusal or problem.failure
        preparation.check_lease(devices)
        sought = Sought(binary=binary, version=version, model=model)
        plan = preparation.plan(devices, port, sought)
        try:
            plan = await preparation.linked(plan, model)
        except Problem as problem:
            refusal = refusal or problem.failure
        fit = await preparation.fit(plan, model)
        try:
            refuse_misfit(fit, len(devices), self._house.config.devices)
        except Problem as problem:
            refusal = refusal or problem.failure
        explained = preparation.explain(devices, port, sought)
        redactor = Redactor.of(order.params, plan)
        return PlanReply(
            plan=replace(plan, argv=redactor.argv(plan.argv), env=redactor.masked(plan)),
            dropped=explained.dropped,
            notes=explained.notes,
            fit=fit,
            refusal=None if refusal is None else sentence(refusal),
        )

    def model_paths(self) -> tuple[str, ...]:
        """Of the models in use, for whoever watches their file systems."""
        told = (record.supervision for record in self._records().values())
        return tuple(it.launch.model_path for it in told if it and it.launch.model_path)

    # ── small things ─────────────────────────────────────────────────────────

    def _all(self) -> tuple[Instance, ...]:
        return tuple(self._instances.values())

    def _records(self) -> dict[str, InstanceRecord]:
        return {name: instance.record for name, instance in self._instances.items()}

    def _taken(self, name: str) -> bool:
        """Whether a new instance may not have this name."""
        return name in self._instances or self._quarantine.bars(name)

    def _find(self, name: str, nonce: str | None) -> Instance | Tombstone:
        """The instance, else its tombstone; with a nonce only that very launch."""
        for found in (self._instances.get(name), self._tombstones.get(name)):
            if found is not None and nonce in (None, found.record.nonce):
                return found
        if nonce is not None and (name in self._instances or name in self._tombstones):
            raise NoSuchInstance(f"that launch of {name} is over; another one has its name")
        raise NoSuchInstance(f"no instance {name!r}; `enginectl ps -a` lists them")
