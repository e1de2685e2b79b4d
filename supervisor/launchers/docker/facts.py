"""What the container engine says of a container, and of itself, as far as we go by it."""

from collections.abc import Mapping
from typing import Any

import msgspec


class State(msgspec.Struct, frozen=True, rename="pascal"):
    """Of its main process. Docker and Podman agree on these."""

    status: str
    """``created``, ``running``, ``paused``, ``restarting``, ``removing``, ``exited``, ``dead``;
    Podman has ``initialized``, ``stopping`` and ``stopped`` besides."""
    running: bool = False
    paused: bool = False
    pid: int = 0
    """Of its main process, as the host of the engine counts; 0 where none runs."""
    exit_code: int = 0
    error: str = ""
    """Why it could not be started, if so."""
    started_at: str = ""
    oom_killed: bool = msgspec.field(default=False, name="OOMKilled")


class _Config(msgspec.Struct, frozen=True, rename="pascal"):
    labels: dict[str, str] | None = None


class Published(msgspec.Struct, frozen=True, rename="pascal"):
    """A port of the host that leads to one of the container."""

    host_port: str
    host_ip: str = ""


class _Network(msgspec.Struct, frozen=True, rename="pascal"):
    ports: dict[str, list[Published] | None] | None = None


class _HostConfig(msgspec.Struct, frozen=True, rename="pascal"):
    network_mode: str = ""


class Container(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer of an inspect, cut down to what is used."""

    id: str
    name: str
    state: State
    config: _Config = _Config()
    host_config: _HostConfig = _HostConfig()
    network_settings: _Network = _Network()

    @property
    def labels(self) -> dict[str, str]:
        return self.config.labels or {}

    @property
    def alive(self) -> bool:
        """Its main process is there, stopped for a while perhaps."""
        return self.state.running or self.state.status in ("paused", "restarting", "stopping")

    @property
    def never_ran(self) -> bool:
        return self.state.status in ("created", "initialized", "configured")

    @property
    def run(self) -> tuple[int, str]:
        """Which run of the container this is; another one has another pid and start."""
        return self.state.pid, self.state.started_at

    def leads_here(self, host_port: int) -> bool:
        """Whether the engine holds this port of the host for the container."""
        ports: Any = self.network_settings.ports or {}
        return any(
            published.host_port == str(host_port)
            for bindings in ports.values()
            for published in bindings or ()
        )

    @property
    def on_host_network(self) -> bool:
        return self.host_config.network_mode == "host"


def identity_of(info: Mapping[str, Any]) -> str | None:
    """Which container engine said this of itself: its id and where its data is.

    The id alone is not enough: up to Docker 20.10 it lies in ``/etc``, whatever the data root.
    Podman makes up an id for each answer (seen with 4.3), so that its storage is all that tells.
    ``None`` where it says neither.
    """
    is_podman = "BuildahVersion" in info
    words = ("podman" if is_podman else info.get("ID"), info.get("DockerRootDir"))
    return " at ".join(word for word in words if isinstance(word, str) and word) or None
