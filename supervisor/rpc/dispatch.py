"""From a parsed request to the method it may call, and from what went wrong to its reply."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import structlog
from msgspec import UNSET

from supervisor.contracts import rpc
from supervisor.contracts.rpc import Request
from supervisor.rpc import envelope
from supervisor.rpc.faults import Fault, error_of
from supervisor.rpc.method import Method
from supervisor.rpc.methods import METHODS
from supervisor.rpc.peers import Role

_logger = structlog.get_logger(__name__)


class Deliver(Protocol):
    """Takes the reply of a request (None: it wants none) and what is to follow its sending."""

    def __call__(self, reply: bytes | None, then: Callable[[], None] | None = None, /) -> None: ...


class Batch:
    """Collects the replies of a batch, and delivers them as one when the last is there."""

    def __init__(self, size: int, deliver: Deliver) -> None:
        self._missing = size
        self._deliver = deliver
        self._replies: list[bytes] = []
        self._then: list[Callable[[], None]] = []

    def deliver(self, reply: bytes | None, then: Callable[[], None] | None = None, /) -> None:
        if reply is not None:
            self._replies.append(reply)
        if then is not None:
            self._then.append(then)
        self._missing -= 1
        if not self._missing:
            whole = b"[" + b",".join(self._replies) + b"]" if self._replies else None
            self._deliver(whole, self._start)

    def _start(self) -> None:
        for start in self._then:
            start()


def method_for(request: Request, role: Role) -> tuple[Method, Any]:
    """The method that a request names and its decoded params. Raises ``Fault``."""
    method = METHODS.get(request.method)
    if method is None:
        raise Fault(
            rpc.METHOD_NOT_FOUND,
            f"no method {request.method!r}; rpc.discover lists those there are",
        )
    if role < method.role:
        raise Fault(
            rpc.FORBIDDEN,
            f"{method.name} takes the role {method.role.name.lower()} "
            f"and this user's is {role.name.lower()}; see `access` in the daemon's config",
        )
    try:
        return method, method.decode(b"{}" if request.params is UNSET else request.params)
    except msgspec.ValidationError as error:
        raise Fault(rpc.INVALID_PARAMS, f"params: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Fault(rpc.PARSE_ERROR, f"not valid JSON: {error}") from None


def failed(request: Request, problem: Exception) -> bytes | None:
    """The error reply. What nobody foresaw is logged, and costs its own call only."""
    error = error_of(problem)
    if error is None:
        _logger.error("rpc method failed", method=request.method, exc_info=problem)
        error = Fault(rpc.INTERNAL_ERROR, "internal error; the daemon's log has the cause").error
    return None if request.id is UNSET else envelope.encode_error(request.id, error)
