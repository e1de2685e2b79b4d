"""Two listings that only look: which engines this host can run, and who holds which device."""

import shutil
from collections.abc import Mapping

from supervisor.contracts.config import Config
from supervisor.contracts.device import DeviceLease, DeviceLeases, DeviceSnapshot
from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.contracts.host import HostProfile
from supervisor.contracts.instance import InstanceRecord
from supervisor.contracts.rpc import EngineEntry, EngineListing
from supervisor.engines.registry import engine_spec, support_of
from supervisor.instances.books import holders
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


def device_leases(snapshot: DeviceSnapshot, records: Mapping[str, InstanceRecord]) -> DeviceLeases:
    """Every device that is there or claimed, with its holders."""
    held = holders(records)
    present = [device.id for device in snapshot.accelerators]
    lost = [device for device in held if device not in present]
    return DeviceLeases(
        leases=tuple(
            DeviceLease(device=device, holders=held.get(device, ()), present=device in present)
            for device in [*present, *lost]
        )
    )
