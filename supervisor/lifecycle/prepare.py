"""From a reservation to a plan that can be run: preflight, the engine's plan, its devices."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import anyio
from msgspec.structs import replace

from supervisor.contracts.device import DeviceAccess, DeviceSnapshot
from supervisor.contracts.engine import (
    ComputeEngineSpec,
    EngineRuntimeKind,
    LaunchPlan,
    LaunchRequest,
    PlanNotes,
)
from supervisor.contracts.failure import SpawnFailed
from supervisor.contracts.host import Accelerator, DeviceId, HostProfile
from supervisor.contracts.instance import InstanceRecord
from supervisor.contracts.model import Fit, Room
from supervisor.engines.devices import apply_devices
from supervisor.engines.environment import base_environment
from supervisor.engines.memory import serving_of
from supervisor.engines.picking import lease_violation
from supervisor.engines.places import is_older, mask_by_places
from supervisor.instances.ports import pick, port_state
from supervisor.launchers.base import SpawnTicket
from supervisor.lifecycle.deadline import cap_ms
from supervisor.lifecycle.errors import InvalidLaunch
from supervisor.lifecycle.fitting import is_advisory, read_models, refuse_misfit
from supervisor.lifecycle.house import House
from supervisor.lifecycle.linked import linked_mounts
from supervisor.lifecycle.logfolders import make_log_path
from supervisor.lifecycle.modelcheck import find_model
from supervisor.lifecycle.order import Order
from supervisor.lifecycle.preflight import (
    Problem,
    check_port,
    find_program,
    wanted_program,
)
from supervisor.models.estimate import estimate, unknown
from supervisor.patience import Overdue
from supervisor.runtimes.versions import engine_version

T = TypeVar("T")

LOOK_S = 30.0
FIT_S = 5.0
"""For the headers of a model: an estimate may not hold up a launch for longer."""

OWN_PREFIX = "ENGINE_SUPERVISOR_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a launcher needs, complete."""

    plan: LaunchPlan
    ticket: SpawnTicket
    fit: Fit | None = None
    """Whether it will fit its devices; ``None`` where the config wants no estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What preflight found out for the plan."""

    binary: str
    """The absolute path of the program; empty for a container."""
    model: str
    version: str | None = None
    """The engine's, where its package tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """One launch's way to a plan. May run again on another port."""

    house: House
    order: Order
    spec: ComputeEngineSpec
    host: HostProfile
    runtime: EngineRuntimeKind
    address: str
    """Where the engine will listen; no name that has to be looked up."""
    bind_host: str
    """The same as it was named."""
    accelerators: Mapping[DeviceId, Accelerator]
    access: Mapping[DeviceId, DeviceAccess]
    places: Mapping[DeviceId, int]
    """The numbers of its CUDA cards, for engines that know no ids."""
    taken_ports: Callable[[], frozenset[int]]
    """Those that records hold at this moment."""
    rooms: Callable[[tuple[DeviceId, ...], DeviceSnapshot], tuple[Room, ...]]
    """The memory of devices, as far as it is not used or claimed by others."""

    async def run(self, record: InstanceRecord) -> Prepared:
        """Look at everything the launch depends on, then plan it. Raises ``Problem``."""
        sought, log_path = await self._in_time(partial(self._look, record))
        plan = await self.plan(record.devices, record.port, sought)
        fit = None
        if self.house.config.devices.fit != "off":
            fit = await self.fit(plan, sought.model)
            refuse_misfit(fit, len(record.devices), self.house.config.devices)
        return Prepared(plan=plan, ticket=self._ticket(plan, record, log_path), fit=fit)

    async def plan(self, devices: tuple[DeviceId, ...], port: int, sought: Sought) -> LaunchPlan:
        """What runs: the engine's own plan with its devices applied, and with what the model's
        links lead to where a container has to be given it. Raises ``Problem``."""
        return await self._linked(self._applied(devices, port, sought), sought.model)

    def _applied(self, devices: tuple[DeviceId, ...], port: int, sought: Sought) -> LaunchPlan:
        request = self.request(devices, port, sought)
        plan = apply_devices(self.spec.plan(request), self.accelerators, self.access)
        if is_older(sought.version, self.spec.device_ids_since):
            plan = mask_by_places(plan, self.places)
        if self.runtime == "docker":
            plan = replace(plan, bind_host=self.bind_host)
            if self.order.command:
                plan = replace(plan, argv=self.order.command)
        elif self.order.command:
            plan = replace(plan, argv=(sought.binary, *self.order.command[1:]))
        return plan

    async def _linked(self, plan: LaunchPlan, model: str) -> LaunchPlan:
        if self.runtime != "docker" or not plan.mounts:
            return plan
        extra = await self._in_time(partial(linked_mounts, model, plan.mounts[0]))
        return replace(plan, mounts=(*plan.mounts, *extra)) if extra else plan

    def explain(self, devices: tuple[DeviceId, ...], port: int, sought: Sought) -> PlanNotes:
        """What the plan leaves out of the order, and why."""
        return self.spec.explain(self.request(devices, port, sought))

    def check_lease(self, devices: tuple[DeviceId, ...]) -> None:
        """The launch's own flags and variables stay inside its lease. Raises ``InvalidLaunch``."""
        order = self.order
        args = (*order.extra_args, *(order.command or ()))
        violation = lease_violation(
            args, order.env, devices, self.accelerators, self.runtime, self.access
        )
        if violation:
            raise InvalidLaunch(violation)

    def request(self, devices: tuple[DeviceId, ...], port: int, sought: Sought) -> LaunchRequest:
        """Everything the engine's plan depends on."""
        order = self.order
        return LaunchRequest(
            engine=order.engine,
            host=self.host,
            runtime=self.runtime,
            devices=devices,
            port=port,
            model_path=sought.model,
            served_model_name=order.served_model_name,
            options=order.options,
            extra_args=order.extra_args,
            env=order.env,
            docker_image=order.docker_image,
            binary=sought.binary,
            ready_limit_ms=self._ready_limit_ms(),
            host_network=self.house.config.docker.network == "host",
        )

    def _ready_limit_ms(self) -> int:
        """How long readiness may take at most: a moving deadline's end, where it moves."""
        order = self.order
        budget_ms = order.ready_deadline_ms or self.spec.health.ready_deadline_ms
        return budget_ms if order.stall_ms is None else cap_ms(budget_ms, order.ready_cap_ms)

    async def binary(self) -> tuple[str, str | None]:
        """The program's absolute path, and its version if that can be known. Raises ``Problem``."""
        return await self._in_time(self._find_binary)

    async def model(self) -> str:
        """The path of the model, as the engine is to get it. Raises ``Problem``."""
        return await self._in_time(self._find_model)

    async def port(self, port: int) -> None:
        """Whether nobody listens there. Raises ``Problem``."""
        await self._in_time(partial(self._check_port, port))

    async def fit(self, plan: LaunchPlan, model: str) -> Fit:
        """An estimate, which never fails: what cannot be read in time is not known."""
        order = self.order
        serving = serving_of(order.engine, plan.argv, plan.env)
        with anyio.move_on_after(FIT_S), suppress(Overdue):
            # Of this moment: another attempt may come long after the launch.
            rooms = self.rooms(plan.devices, await self.house.inventory.snapshot())
            facts, beside = await self.house.looking.run(
                read_models, self.house.models, model, serving, within_s=FIT_S
            )
            found = estimate(order.engine, facts, serving, rooms, beside)
            return replace(found, advisory=is_advisory(self.order, rooms))
        return unknown(f"reading the model's headers took longer than {FIT_S:g} s")

    async def _in_time(self, look: Callable[[], T]) -> T:
        """Look in a thread that is left behind when a file system hangs."""
        try:
            return await self.house.looking.run(look, within_s=LOOK_S)
        except Overdue as error:
            raise Problem(
                SpawnFailed(
                    detail="looking at the model, the program and the log took longer than "
                    f"{LOOK_S:g} s; does a file system hang? ({error})"
                )
            ) from None

    async def another_port(self, record: InstanceRecord) -> int | None:
        """Another pool port, if a stranger holds the one of this record; else ``None``."""
        host, pool = self.address, self.house.config.ports
        if self.order.port is not None or port_state(host, record.port) != "taken":
            return None
        return pick(pool.first, pool.last, host, self.taken_ports())

    def _look(self, record: InstanceRecord) -> tuple[Sought, str]:
        binary, version = self._find_binary()
        sought = Sought(binary=binary, version=version, model=self._find_model())
        self._check_port(record.port)
        stamp = record.started_at.translate(str.maketrans("", "", "-:."))
        attempt = record.supervision.attempt if record.supervision else 1
        stem = f"{stamp}-{record.nonce[:8]}-{attempt:04}-{record.port}"
        return sought, make_log_path(self.house.paths.log_dir, record.name, stem)

    def _check_port(self, port: int) -> None:
        check_port(self.address, port, explicit=self.order.port is not None)

    def _find_binary(self) -> tuple[str, str | None]:
        if self.runtime == "docker":
            return "", None  # its image has it
        engines = self.house.config.engines
        configured: str | None = getattr(engines, self.order.engine) or None
        program = wanted_program(self.order, self.spec, configured)
        path = find_program(program, self.spec, self._search_path())
        return path, engine_version(self.order.engine, path) if self.spec.device_ids_since else None

    def _find_model(self) -> str:
        return find_model(self.order)

    def _search_path(self) -> str:
        return self.order.env.get("PATH") or self.house.inherited_env.get("PATH", "/usr/bin:/bin")

    def _ticket(self, plan: LaunchPlan, record: InstanceRecord, log_path: str) -> SpawnTicket:
        own = {
            OWN_PREFIX + "INSTANCE": record.name,
            OWN_PREFIX + "NONCE": record.nonce,
            OWN_PREFIX + "DEVICES": ",".join(record.devices),
            OWN_PREFIX + "SUPERVISOR": self.house.supervisor_id,
        }
        inherited: dict[str, str] = {}
        if self.runtime == "process":  # an image brings its own
            inherited = base_environment(self.house.inherited_env, plan.argv[0])
        return SpawnTicket(
            name=record.name,
            nonce=record.nonce,
            log_path=log_path,
            env=inherited | plan.env | own,
        )
