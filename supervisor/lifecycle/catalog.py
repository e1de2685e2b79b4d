"""Two listings that only look: which engines this host can run, and who holds which device."""

import shutil
from collections.abc import Mapping

from supervisor.contracts.config import Config
from supervisor.contracts.device import (
    DeviceLease,
    DeviceLeases,
    DeviceSnapshot,
    DeviceStanding,
    Withholding,
)
from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.contracts.host import DeviceId, HostProfile
from supervisor.contracts.instance import InstanceRecord
from supervisor.contracts.rpc import EngineEntry, EngineListing
from supervisor.engines.registry import engine_spec, support_of
from supervisor.instances.books import Books
from supervisor.instances.lease import Foreign
from supervisor.instances.standing import standings
from supervisor.runtimes.versions import engine_version


def engine_listing(host: HostProfile, config: Config, search: str) -> EngineListing:
    """Every engine id, supported or not. Looks for programs on ``search``: blocks."""
    return EngineListing(
        engines=tuple(_entry(engine, host, config, search) for engine in ENGINE_IDS)
    )


def _entry(engine: EngineId, host: HostProfile, config: Config, search: str) -> EngineEntry:
    spec, support = engine_spec(engine), support_of(engine, host)
    configured: str | None = getattr(config.engines, engine) or None
    wanted = configured or (spec.default_binary if spec else None)
    installed = shutil.which(wanted, path=search) if wanted else None
    return EngineEntry(
        id=engine,
        support=support,
        runtimes=support.runtimes or (),
        default_binary=spec.default_binary if spec else None,
        default_port=spec.default_port if spec else None,
        image=spec.image(host) if spec and spec.image else None,
        installed=installed,
        version=engine_version(engine, installed) if installed else None,
    )


def device_leases(
    snapshot: DeviceSnapshot,
    records: Mapping[str, InstanceRecord],
    withheld: Mapping[DeviceId, tuple[Withholding, ...]],
    foreign: Foreign,
) -> DeviceLeases:
    """Every device that is there, claimed or lost, with its holders and its strangers."""
    books = Books.of(snapshot.accelerators, records)
    told = standings(snapshot.accelerators, records, withheld=withheld, foreign=foreign)
    told |= {it.id: "lost" for it in snapshot.lost if it.id not in told}

    def lease(device: DeviceId, standing: DeviceStanding) -> DeviceLease:
        known = books.known.get(device)
        return DeviceLease(
            device=device,
            holders=books.held.get(device, ()),
            present=known is not None,
            standing=standing,
            withheld=withheld.get(device, ()),
            foreign=foreign.get(device, ()),
            budget_bytes=known.memory_total_bytes if known else None,
            claimed_bytes=books.claimed(known) if known else 0,
        )

    return DeviceLeases(leases=tuple(lease(device, it) for device, it in told.items()))
