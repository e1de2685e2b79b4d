"""What every instance works with, in one place: the rooms that lifecycle stands on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from supervisor.bus import Bus
from supervisor.clock import Clock
from supervisor.contracts.config import Config
from supervisor.contracts.device import DeviceSnapshot
from supervisor.contracts.engine import EngineRuntimeKind
from supervisor.contracts.event import Event
from supervisor.contracts.host import HostProfile
from supervisor.contracts.instance import DockerHandle, HandleReference, ProcessHandle
from supervisor.contracts.paths import Paths
from supervisor.devices.inventory import DevicesUnknown, Inventory
from supervisor.health.pacing import Pace
from supervisor.instances.state import Now
from supervisor.instances.store import RecordStore
from supervisor.launchers.base import Launcher
from supervisor.lifecycle.errors import Unavailable
from supervisor.logs.keeper import LogKeeper
from supervisor.models.facts import Library
from supervisor.patience import Patience

LOOKERS = 16


def _pass(step: str) -> None:
    """The usual hook: nothing happens at a step."""


@dataclass(slots=True, kw_only=True, eq=False)
class House:
    """Wired once by the daemon, or by a test with other walls; but for ``config`` it stays so."""

    clock: Clock
    bus: Bus
    store: RecordStore
    launchers: Mapping[EngineRuntimeKind, Launcher]
    inventory: Inventory
    config: Config
    paths: Paths
    supervisor_id: str
    inherited_env: Mapping[str, str]
    """The daemon's own environment, from which an engine gets a defined part."""
    looking: Patience = field(default_factory=lambda: Patience("looking at files", LOOKERS))
    """At models and programs, which may lie on a mount that hangs."""
    meeting: Patience = field(default_factory=lambda: Patience("looking at strangers", LOOKERS))
    """In ``/proc``, where who is stuck in a driver holds a reader up."""
    reading: Patience = field(default_factory=lambda: Patience("reading engines' logs", LOOKERS))
    pace: Pace = field(default_factory=Pace)
    """Of the probes of all engines that load."""
    models: Library = field(default_factory=Library)
    """What models' files were found to say, for as long as they do not change."""
    at: Callable[[str], None] = field(default=_pass)
    """Called at each named step of a life; a test raises, or dies, in it."""
    logs: LogKeeper = field(init=False)

    def __post_init__(self) -> None:
        self.logs = LogKeeper(self.config.logs)

    def reconfigure(self, config: Config) -> None:
        """What is looked up in the configuration from now on is looked up in this one."""
        self.config = config

    def now(self) -> Now:
        return Now(
            boot_id=self.clock.boot_id,
            monotonic_ns=self.clock.monotonic_ns(),
            wall=self.clock.wall(),
        )

    async def snapshot(self, *, fresh: bool = False) -> DeviceSnapshot:
        """The devices, as far as they can be seen. Raises ``Unavailable``."""
        try:
            return await self.inventory.snapshot(fresh=fresh)
        except DevicesUnknown as error:
            raise Unavailable(str(error)) from error

    async def profile(self) -> HostProfile:
        """Raises ``Unavailable``."""
        try:
            return await self.inventory.profile()
        except DevicesUnknown as error:
            raise Unavailable(str(error)) from error

    def publish(self, event: Event) -> None:
        self.bus.publish(event)

    def launcher_of(self, ref: HandleReference) -> Launcher | None:
        """The one that answers for a handle; ``None`` for a pin, and where it is not built."""
        match ref:
            case ProcessHandle():
                return self.launchers.get("process")
            case DockerHandle():
                return self.launchers.get("docker")
            case _:
                return None
