"""Reading the configuration anew while the daemon runs, and what of it takes effect at once.

What engines and clients meet next time (recipes, ports, restarts, access) changes; what the daemon
is built on (its paths, devices and log files) stays until it is started again, and is named.
"""

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import msgspec
import structlog
from msgspec.structs import replace

from supervisor.contracts.config import Config, ConfigError
from supervisor.contracts.event import ConfigReloaded, Warning_
from supervisor.contracts.rpc import ReloadReply
from supervisor.journal import Journal
from supervisor.lifecycle.errors import NotDone
from supervisor.lifecycle.house import House
from supervisor.patience import Overdue, Patience
from supervisor.rpc.server import RpcServer

READ_S = 5.0

log = structlog.get_logger(__name__)


class Reloader:
    """For the one daemon of this process; ``server`` is there once it serves."""

    def __init__(self, house: House, journal: Journal, read: Callable[[], Config]) -> None:
        self._house = house
        self._journal = journal
        self._read = read
        self._turn = anyio.Lock()
        self._reading = Patience("reading the configuration", 2)
        self.server: RpcServer | None = None

    async def reload(self) -> ReloadReply:
        """Reopen the journal, and take over what changed in the file.

        Raises ``NotDone`` where the file cannot be used; then everything stays as it was.
        """
        self._journal.reopen()
        async with self._turn:
            try:
                new = await self._reading.run(self._read, within_s=READ_S)
            except Exception as error:  # a defect in the reading must not end the daemon either
                why = str(error) if isinstance(error, ConfigError | Overdue) else repr(error)
                self._house.publish(Warning_(code="config-rejected", detail=why))
                log.error("the configuration was not taken over", error=why)
                raise NotDone(f"the configuration stays as it was: {why}") from None
            old = self._house.config
            now = taken_over(old, new)
            self._house.reconfigure(now)
            if self.server is not None:
                self.server.access = now.access
            reply = ReloadReply(changed=differing(old, now), at_restart=differing(now, new))
            self._house.publish(ConfigReloaded(changed=reply.changed))
            log.info("reloaded", changed=reply.changed, at_restart=reply.at_restart)
            return reply


def taken_over(old: Config, new: Config) -> Config:
    """The configuration that is in effect from now on."""
    return replace(
        old,
        recipes=new.recipes,
        restart=new.restart,
        ports=new.ports,
        engines=new.engines,
        access=replace(new.access, socket_mode=old.access.socket_mode),
        devices=replace(old.devices, foreign=new.devices.foreign, fit=new.devices.fit),
    )


def differing(old: Config, new: Config) -> tuple[str, ...]:
    """The keys of the file that have another value, such as ``restart.max-ms``."""
    return tuple(_differing("", old, new))


def _differing(path: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    if path == "recipes":
        yield from (
            f"recipes.{name}" for name in sorted({*old, *new}) if old.get(name) != new.get(name)
        )
    elif isinstance(old, msgspec.Struct) and type(old) is type(new):
        for field in msgspec.structs.fields(type(old)):
            key = f"{path}.{field.encode_name}" if path else field.encode_name
            yield from _differing(key, getattr(old, field.name), getattr(new, field.name))
    else:
        yield path
