"""What a launch gets to work with: its engine on this host, its devices, its port, its record.

``look`` may wait; ``book`` must not, for it decides on what the records say at that moment.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from msgspec import UNSET
from msgspec.structs import replace

from supervisor.clock import rfc3339, rfc3339_in
from supervisor.contracts.config import ForeignPolicy
from supervisor.contracts.device import DeviceSnapshot, Withholding
from supervisor.contracts.engine import ComputeEngineSpec, EngineRuntimeKind
from supervisor.contracts.failure import NoCapacity, SpawnFailed, UnsupportedFailure
from supervisor.contracts.host import SELF, DeviceId, HostProfile
from supervisor.contracts.instance import RECORD_SCHEMA, InstanceRecord, Supervision
from supervisor.devices.inventory import DevicesUnknown
from supervisor.devices.traces import EXPECTED
from supervisor.engines.places import pci_places
from supervisor.engines.registry import engine_spec, support_of
from supervisor.health.address import AddressError, literal_addresses, probe_addresses
from supervisor.instances.books import wholes_of
from supervisor.instances.lease import Claim, Foreign, Grant, InvalidClaim, Refusal, grant
from supervisor.instances.ports import pick, port_state, taken_ports
from supervisor.lifecycle.demand import config_file, with_config
from supervisor.lifecycle.errors import InvalidLaunch, LifecycleError
from supervisor.lifecycle.fitting import rooms_of
from supervisor.lifecycle.house import House
from supervisor.lifecycle.order import Order, resolve
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.prepare import Preparation
from supervisor.lifecycle.quarantine import Quarantine
from supervisor.lifecycle.shortid import spelled_out
from supervisor.lifecycle.strangers import Strangers
from supervisor.patience import Overdue

CONFIG_S = 2.0

Records = Callable[[], Mapping[str, InstanceRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The host as one launch found it."""

    host: HostProfile
    snapshot: DeviceSnapshot
    spec: ComputeEngineSpec
    runtime: EngineRuntimeKind
    bind_host: str
    """The launch's own, else where containers are published, else loopback."""
    address: str
    """The bind host, looked up if it was a name."""
    foreign: Foreign
    """Who computes on which device and is none of ours."""


class BookingDesk:
    """Reads the records of this moment through ``records`` and never changes any."""

    def __init__(
        self, house: House, records: Records, quarantine: Quarantine, strangers: Strangers
    ) -> None:
        self._house = house
        self._records = records
        self._quarantine = quarantine
        self._strangers = strangers

    async def spelled_out(self, order: Order) -> Order:
        """With the whole ids of devices that are named by a part, and as many of them as a file
        asks for that the engine will read. Raises ``InvalidLaunch``."""
        order = await self._counted(order)
        try:
            snapshot = await self._house.inventory.snapshot()
        except DevicesUnknown:
            return order  # for which ``look`` has the failure
        return spelled_out(order, {device.id for device in snapshot.accelerators})

    async def _counted(self, order: Order) -> Order:
        """A file that hangs says nothing; preflight and the engine will have to read it as well."""
        if path := config_file(order):
            with suppress(Overdue):
                return await self._house.looking.run(with_config, order, path, within_s=CONFIG_S)
        return order

    async def look(self, order: Order) -> Surroundings:
        """Whether the engine runs here, and how. Raises ``Problem``."""
        inventory = self._house.inventory
        try:
            host, snapshot = await inventory.profile(), await inventory.snapshot()
        except DevicesUnknown as error:
            unseen = NoCapacity(need=order.need, free=0, detail=str(error))
            raise Problem(unseen) from error
        host = _as_leased(host, snapshot, order.devices or ())
        spec, runtime = self._supported(order, host)
        bind_host = order.bind_host
        docker = self._house.config.docker
        if runtime == "docker" and docker.network == "bridge" and not order.host_named:
            bind_host = docker.publish
        address = await _address(bind_host)
        foreign = await self._strangers.among(snapshot)
        return Surroundings(
            host=host,
            snapshot=snapshot,
            spec=spec,
            runtime=runtime,
            bind_host=bind_host,
            address=address,
            foreign=foreign,
        )

    def book(
        self, order: Order, nonce: str, found: Surroundings
    ) -> tuple[InstanceRecord, Preparation]:
        """Devices and a port for it, in a record that nobody holds yet. Does not wait.

        Raises ``Problem``, and ``InvalidLaunch`` for what would leave its lease.
        """
        granted = self.devices(order, found)
        preparation = self.preparation(order, found)
        preparation.check_lease(granted.devices)
        return self._record(order, nonce, found, granted, self.port(order, found)), preparation

    async def again(self, record: InstanceRecord) -> Preparation:
        """For another attempt of an instance that keeps its name, port, devices and runtime.

        It ran here once: a container engine that is away comes back, so its absence is no verdict;
        nor is that of a device, which may be plugged in again. Raises ``Problem``.
        """
        await self._need_present(record.devices)
        assert record.supervision, "lifecycle runs only records that have one"
        try:
            order = resolve(record.supervision.launch, {})
        except LifecycleError as error:
            raise Problem(SpawnFailed(detail=str(error))) from error
        order = dataclasses.replace(order, runtime=record.runtime)
        try:
            # Other devices may have come meanwhile, and make another host of it for others.
            as_leased = dataclasses.replace(order, devices=record.devices)
            return self.preparation(order, await self.look(as_leased))
        except Problem as problem:
            failure = problem.failure
            if record.runtime == "docker" and isinstance(failure, UnsupportedFailure):
                raise Problem(SpawnFailed(detail=failure.reason)) from problem
            raise

    async def _need_present(self, devices: tuple[DeviceId, ...]) -> None:
        try:
            snapshot = await self._house.inventory.snapshot()
        except DevicesUnknown:
            return  # for which ``look`` has the failure
        here = {device.id for device in snapshot.accelerators}
        if not here.issuperset(devices):
            reasons = {lost.id: lost.reason for lost in snapshot.lost}
            gone = [it for it in devices if it not in here]
            said = [f"{it} is gone: {reasons.get(it, 'no driver lists it')}" for it in gone]
            raise Problem(
                NoCapacity(
                    need=len(devices),
                    free=len(devices) - len(gone),
                    detail="; ".join((*said, *_silent(snapshot))),
                )
            )

    def preparation(self, order: Order, found: Surroundings) -> Preparation:
        there = found.snapshot.accelerators
        accelerators = {device.id: device.accelerator for device in there}
        access = {device.id: device.access for device in there if device.access is not UNSET}
        return Preparation(
            house=self._house,
            order=order,
            spec=found.spec,
            host=found.host,
            runtime=found.runtime,
            address=found.address,
            bind_host=found.bind_host,
            accelerators=accelerators,
            access=access,
            places=pci_places(found.snapshot.accelerators),
            taken_ports=lambda: taken_ports(self._records()),
            rooms=lambda devices, now: rooms_of(order, devices, now, self._records()),
        )

    def devices(self, order: Order, found: Surroundings) -> Grant:
        """The lease that the order would get now. Raises ``Problem``, ``InvalidLaunch``."""
        policy = self._house.config.devices.foreign
        return self._grant(_claim(order, found), found.snapshot, found.host, found.foreign, policy)

    def at_best(self, order: Order, found: Surroundings) -> tuple[DeviceId, ...]:
        """The devices that it would get if nobody held any; of too few, those that it names."""
        there = found.snapshot.accelerators
        granted = grant(_claim(order, found), there, {}, accelerator=found.host.accelerator)
        if isinstance(granted, Grant):
            return granted.devices
        named = order.devices or ()
        return tuple(device.id for device in there if device.id in named)

    def withheld(self, snapshot: DeviceSnapshot) -> Mapping[DeviceId, tuple[Withholding, ...]]:
        """Devices that records which cannot be read keep from everybody."""
        claimed = {device for record in self._records().values() for device in record.devices}
        return self._quarantine.withheld(snapshot.accelerators, claimed)

    def _grant(
        self,
        claim: Claim,
        snapshot: DeviceSnapshot,
        host: HostProfile,
        foreign: Foreign,
        policy: ForeignPolicy,
    ) -> Grant:
        granted = grant(
            claim,
            snapshot.accelerators,
            self._records(),
            accelerator=host.accelerator,
            withheld={it: why[-1].reason for it, why in self.withheld(snapshot).items()},
            foreign=foreign,
            policy=policy,
        )
        if isinstance(granted, InvalidClaim):
            raise InvalidLaunch(granted.detail)
        if isinstance(granted, Refusal):
            raise Problem(
                NoCapacity(
                    need=granted.need,
                    free=granted.free,
                    need_bytes=UNSET if granted.need_bytes is None else granted.need_bytes,
                    free_bytes=UNSET if granted.free_bytes is None else granted.free_bytes,
                    detail="; ".join((granted.detail, *_silent(snapshot))),
                )
            )
        return granted

    def hold(
        self, devices: tuple[DeviceId, ...], snapshot: DeviceSnapshot, host: HostProfile
    ) -> None:
        """Whether a pin may have these, alone. Raises ``Problem``, ``InvalidLaunch``."""
        self._grant(Claim(devices=devices, exclusive=True), snapshot, host, {}, "allow")

    def port(self, order: Order, found: Surroundings) -> int:
        """The explicit port, or one of the pool. Raises ``Problem``."""
        taken = taken_ports(self._records())
        pool = self._house.config.ports
        if order.port is None:
            last = order.last_port
            start = last if last and pool.first <= last <= pool.last else None
            port = pick(pool.first, pool.last, found.address, taken, start=start)
            if port is None and port_state(found.address, pool.first) == "no-address":
                raise Problem(SpawnFailed(detail=f"{found.bind_host} is no address of this host"))
            detail = f"no port of the pool {pool.first} to {pool.last} is free"
        else:
            port = None if order.port in taken else order.port
            detail = f"port {order.port} belongs to another instance"
        if port is None:
            raise Problem(SpawnFailed(detail=detail, reason="port-taken"))
        return port

    def _supported(
        self, order: Order, host: HostProfile
    ) -> tuple[ComputeEngineSpec, EngineRuntimeKind]:
        support, spec = support_of(order.engine, host), engine_spec(order.engine)
        if not support.ok or spec is None:
            reason = support.reason or "no engine of this name is built in"
            raise Problem(UnsupportedFailure(engine=order.engine, reason=reason))
        runtimes = [kind for kind in support.runtimes or () if kind in self._house.launchers]
        runtime = order.runtime or (runtimes[0] if runtimes else "process")
        if runtime not in runtimes:
            how = "in a container" if runtime == "docker" else "as a process"
            reason = f"{order.engine} cannot run {how} here"
            if why := (support.without or {}).get(runtime):
                reason = f"{reason}: {why}"
            if runtime == "docker" and "docker" not in self._house.launchers:
                reason = "this version runs engines as processes only, not in containers"
            raise Problem(UnsupportedFailure(engine=order.engine, reason=reason))
        image = order.docker_image or (spec.image(host) if spec.image else None)
        if runtime == "docker" and image is None:
            reason = f"no image of {order.engine} is known for {host.accelerator} on {host.arch}"
            reason = f"{reason}; the launch can name one"
            raise Problem(UnsupportedFailure(engine=order.engine, reason=reason))
        return spec, runtime

    def _record(
        self, order: Order, nonce: str, found: Surroundings, granted: Grant, port: int
    ) -> InstanceRecord:
        clock, devices = self._house.clock, granted.devices
        leased = [device for device in found.snapshot.accelerators if device.id in devices]
        return InstanceRecord(
            name=order.name,
            node_id=SELF,
            engine=order.engine,
            recipe_id=order.recipe_id,
            runtime=found.runtime,
            ref=None,
            port=port,
            devices=devices,
            nonce=nonce,
            started_at=rfc3339(clock.wall()),
            ready_deadline_at=rfc3339_in(clock, order.ready_deadline_ms or 0),
            supervision=Supervision(
                schema_version=RECORD_SCHEMA,
                boot_id=clock.boot_id,
                supervisor_id=self._house.supervisor_id,
                launch=order.params,
                intent="launching",
                attempt=1,
                exclusive=granted.exclusive,
                bind_host=found.bind_host,
                memory_bytes=order.memory_bytes,
                wholes=wholes_of(leased),
            ),
        )


def _claim(order: Order, found: Surroundings) -> Claim:
    return Claim(
        devices=order.devices,
        count=_count(order, found.host),
        exclusive=order.exclusive,
        memory_bytes=order.memory_bytes,
    )


def _count(order: Order, host: HostProfile) -> int:
    """How many devices to choose. There is one CPU, and ranks on it share its cores."""
    counted = order.devices is None and order.params.device_count is UNSET
    return 1 if counted and host.accelerator == "cpu" else order.need


def _as_leased(
    host: HostProfile, snapshot: DeviceSnapshot, devices: tuple[DeviceId, ...]
) -> HostProfile:
    """The host as named devices make it: on a GPU host, ``cpu:0`` alone is a CPU host's launch."""
    kinds = {device.accelerator for device in snapshot.accelerators if device.id in devices}
    return replace(host, accelerator=kinds.pop()) if len(kinds) == 1 else host


def _silent(snapshot: DeviceSnapshot) -> Iterator[str]:
    """Drivers that could not be asked, for that may be why there are too few devices."""
    for report in snapshot.probes:
        if report.state == "failed" and report.probe in EXPECTED:
            yield f"the probe for {report.probe} failed: {report.reason or 'no reason given'}"


async def _address(bind_host: str) -> str:
    if literal_addresses(bind_host) is not None:
        return bind_host
    try:
        return str((await probe_addresses(bind_host))[0])
    except AddressError as error:
        raise Problem(SpawnFailed(detail=str(error))) from error
