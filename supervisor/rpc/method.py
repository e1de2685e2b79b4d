"""A method as the dispatcher and the OpenRPC document see it: one row of the table."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, get_type_hints

import msgspec

from supervisor.bus import Bus
from supervisor.lifecycle.api import Supervisor
from supervisor.rpc.peers import Role
from supervisor.rpc.subscriptions import Subscriptions


@dataclass(frozen=True, slots=True)
class Session:
    """What a handler works with: the daemon's parts, and the connection that asks."""

    supervisor: Supervisor
    bus: Bus
    role: Role
    subscriptions: Subscriptions


@dataclass(frozen=True, slots=True)
class Then:
    """A result, and what is to happen once it was sent: a notification must not overtake it."""

    result: msgspec.Struct
    start: Callable[[], None]


Handler = Callable[[Session, Any], Any]


@dataclass(frozen=True, slots=True)
class Method:
    """What a name stands for."""

    name: str
    summary: str
    role: Role
    params: type[msgspec.Struct]
    result: Any
    handler: Handler
    decode: Callable[[bytes | msgspec.Raw], Any]
    immediate: bool
    """A plain function, which reads memory only and is answered on the spot."""
    finishes: bool
    """Goes on to its end when its client leaves: what it does must not stop half way."""


class Table(dict[str, Method]):
    """Methods by name. Their types are those that the handlers are annotated with."""

    def method(
        self, name: str, role: Role, summary: str, *, result: Any = None, finishes: bool = False
    ) -> Callable[[Handler], Handler]:
        """Register a handler; ``result`` is named where it is wrapped in ``Then``."""

        def register(handler: Handler) -> Handler:
            hints = get_type_hints(handler)
            params = hints["params"]
            self[name] = Method(
                name=name,
                summary=summary,
                role=role,
                params=params,
                result=result or hints["return"],
                handler=handler,
                decode=msgspec.json.Decoder(params).decode,
                immediate=not iscoroutinefunction(handler),
                finishes=finishes,
            )
            return handler

        return register
