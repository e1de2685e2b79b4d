"""Where the daemon and its clients meet: the default places, from environment and config."""

from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.contracts.config import Config

PREFIX = "ENGINE_SUPERVISOR_"
SYSTEM_SOCKET = "/run/engine-supervisor/engined.sock"


@dataclass(frozen=True, slots=True)
class Paths:
    """Absolute places of one daemon. ``events`` lies in the log directory."""

    socket: str
    state_dir: str
    log_dir: str

    @property
    def events(self) -> str:
        return f"{self.log_dir}/events.jsonl"


def default_socket(env: Mapping[str, str], configured: str | None = None) -> str:
    """The socket's path: the environment, else ``configured``, else systemd's or XDG's place.

    Without any of them daemon and clients meet at one fixed path under ``/run``.
    """
    if named := env.get(PREFIX + "SOCKET"):
        return named
    if configured:
        return configured
    if systemd := _first(env.get("RUNTIME_DIRECTORY")):
        return f"{systemd}/engined.sock"
    if xdg := env.get("XDG_RUNTIME_DIR"):
        return f"{xdg}/engine-supervisor/engined.sock"
    return SYSTEM_SOCKET


def resolve_paths(env: Mapping[str, str], config: Config) -> Paths:
    """Every path of a daemon with this configuration, in the order environment, file, default."""
    home = env.get("HOME") or "/root"
    state = (
        env.get(PREFIX + "STATE_DIR")
        or (config.state_dir or None)
        or _first(env.get("STATE_DIRECTORY"))
        or f"{env.get('XDG_STATE_HOME') or home + '/.local/state'}/engine-supervisor"
    )
    logs = (
        env.get(PREFIX + "LOG_DIR")
        or (config.log_dir or None)
        or _first(env.get("LOGS_DIRECTORY"))
        or f"{state}/log"
    )
    return Paths(
        socket=default_socket(env, config.socket or None),
        state_dir=state,
        log_dir=logs,
    )


def _first(listed: str | None) -> str | None:
    """systemd joins several directories with colons; the first is ours."""
    return listed.split(":")[0] if listed else None
