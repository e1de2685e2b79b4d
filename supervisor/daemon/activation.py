"""What systemd hands to the daemon at its start: taken, and removed so that nobody inherits it.

A child that inherits ``NOTIFY_SOCKET`` or ``WATCHDOG_USEC`` can speak for the daemon, or is
confused by them. So they leave the environment before anything is spawned, and the descriptors are
closed on exec.
"""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import repeat

FIRST_FD = 3
"""``SD_LISTEN_FDS_START``."""

_PREFIXES = ("LISTEN_", "WATCHDOG_", "MEMORY_PRESSURE_")
_NAMES = frozenset(
    {"NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "FDSTORE", "SYSTEMD_EXEC_PID"}
)


@dataclass(frozen=True, slots=True)
class Activation:
    """All of it empty where systemd did not start us."""

    notify_socket: str | None = None
    watchdog_s: float | None = None
    """How long systemd waits for a sign of life."""
    fds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By name: sockets, and what an earlier daemon had put into the store. Ours to close."""


def take(env: MutableMapping[str, str]) -> Activation:
    """Consume what is in ``env``, whether it is meant for this process or only came with it."""
    found = {key: env.pop(key) for key in [*env] if key in _NAMES or key.startswith(_PREFIXES)}
    return Activation(
        notify_socket=found.get("NOTIFY_SOCKET") or None,
        watchdog_s=_watchdog(found),
        fds=_descriptors(found),
    )


def _watchdog(env: Mapping[str, str]) -> float | None:
    micros = _number(env.get("WATCHDOG_USEC"))
    if not micros or not _meant_for_us(env.get("WATCHDOG_PID", str(os.getpid()))):
        return None
    return micros / 1e6


def _descriptors(env: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    if not _meant_for_us(env.get("LISTEN_PID")):
        return {}
    count = _number(env.get("LISTEN_FDS"))
    names = env["LISTEN_FDNAMES"].split(":") if env.get("LISTEN_FDNAMES") else repeat("unknown")
    fds: dict[str, tuple[int, ...]] = {}
    for fd, name in zip(range(FIRST_FD, FIRST_FD + count), names, strict=False):
        os.set_inheritable(fd, False)
        fds[name] = (*fds.get(name, ()), fd)
    return fds


def _meant_for_us(pid: str | None) -> bool:
    return _number(pid) == os.getpid()


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0
