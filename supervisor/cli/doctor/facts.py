"""What ``doctor`` knows: the daemon's own answers where it gives any, and this host's files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from supervisor.client import Client, ClientError, DaemonUnreachable
from supervisor.contracts.config import Config
from supervisor.contracts.device import DeviceSnapshot
from supervisor.contracts.host import HostProfile
from supervisor.contracts.paths import Paths, resolve_paths
from supervisor.contracts.rpc import EngineListing, InstanceListing, NoParams, SupervisorInfo

ANSWER_S = 20.0
"""The first question about devices waits for drivers."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Facts:
    """``trouble`` is why the daemon does not answer; then its answers are all missing."""

    paths: Paths
    env: Mapping[str, str]
    trouble: ClientError | None = None
    info: SupervisorInfo | None = None
    profile: HostProfile | None = None
    snapshot: DeviceSnapshot | None = None
    engines: EngineListing | None = None
    instances: InstanceListing | None = None
    root: Path = Path("/")
    """Above ``proc`` and ``sys``; a test has its own."""

    @property
    def process(self) -> Path:
        """The kernel's files about the daemon, or about this process where there is none."""
        return self.root / "proc" / ("self" if self.info is None else str(self.info.pid))


def gather(client: Client, env: Mapping[str, str]) -> Facts:
    """Ask the daemon everything. Never raises: no answer is a fact too."""
    expected = resolve_paths(env, Config())
    paths = Paths(client.path, expected.state_dir, expected.log_dir)
    try:
        info = client.info()
    except ClientError as error:
        return Facts(paths, env, trouble=error)
    told = info.paths.get
    paths = Paths(
        client.path, told("stateDir", expected.state_dir), told("logDir", expected.log_dir)
    )
    return Facts(
        paths,
        env,
        info=info,
        profile=_asked(client, "host.profile", HostProfile),
        snapshot=_asked(client, "device.snapshot", DeviceSnapshot),
        engines=_asked(client, "engine.list", EngineListing),
        instances=_asked(client, "instance.list", InstanceListing),
    )


def _asked(client: Client, method: str, kind: type[T]) -> T | None:
    """None where this one answer does not come: the others may."""
    try:
        return client.call(method, NoParams(), kind, timeout=ANSWER_S)
    except DaemonUnreachable:
        client.close()
        return None
    except (ClientError, msgspec.DecodeError):
        return None
