"""Where to knock: literal addresses, derived from the one that an engine was told to bind.

An engine bound to one address is asked at that one, and a wildcard at the loopback of its own
family. Names are never left to the connect, which tries ``::1`` first while the engine listens
on IPv4 alone (librefang#3112).
"""

import socket
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address

import anyio

from supervisor.patience import Overdue, Patience

IPAddress = IPv4Address | IPv6Address

LOOPBACK_4 = IPv4Address("127.0.0.1")
LOOPBACK_6 = IPv6Address("::1")
MOST_ADDRESSES = 4
RESOLVE_S = 2.0
AGAIN_S = 1.0
"""Between two tries at a name that could not be resolved."""
STALE_S = 10.0
"""After this long a name is resolved anew, if nobody is met where it led to."""
_resolving = Patience("resolving names", 8)


class AddressError(Exception):
    """The bind host leads to no address that could be asked."""


class Addresses:
    """Where one engine is asked. A name is resolved when it is first needed, and again after a
    failure: resolvers fail for a second, and an engine loads for ten minutes.
    """

    def __init__(self, bind_host: str, tell: Callable[[str], None] = lambda trouble: None) -> None:
        """``tell`` hears why the name cannot be resolved, once for as long as it is the same."""
        self._bind_host = bind_host
        self._tell = tell
        self._literal = literal_addresses(bind_host)
        self._found: tuple[IPAddress, ...] = ()
        self._trouble: str | None = None
        self._asked_s = 0.0

    async def known(self) -> tuple[IPAddress, ...]:
        """Raises ``AddressError``, which is no word about the engine."""
        if self._literal is not None:
            return self._literal
        if not self._found and (self._trouble is None or self._is_older_than(AGAIN_S)):
            await self._resolve()
        if not self._found:
            raise AddressError(self._trouble)
        return self._found

    def nobody_there(self) -> None:
        """The name may lead elsewhere by now."""
        if self._found and self._is_older_than(STALE_S):
            self._found = ()
            self._trouble = None

    async def _resolve(self) -> None:
        trouble = None
        try:
            self._found = await probe_addresses(self._bind_host)
        except AddressError as error:
            trouble = str(error)
        self._asked_s = anyio.current_time()
        if trouble not in (None, self._trouble):
            self._tell(str(trouble))
        self._trouble = trouble

    def _is_older_than(self, seconds: float) -> bool:
        return anyio.current_time() - self._asked_s >= seconds


async def probe_addresses(bind_host: str, resolve_s: float = RESOLVE_S) -> tuple[IPAddress, ...]:
    """The addresses to ask, in this order; several only where the engine may be at any of them.

    Asking more than one is safe, for an answer counts only once its server is proved to be ours.
    A name is resolved here, once, in a thread that is left behind when it takes too long.
    """
    known = literal_addresses(bind_host)
    if known is not None:
        return known
    resolve = partial(socket.getaddrinfo, bind_host, None, type=socket.SOCK_STREAM)
    try:
        found = await _resolving.run(resolve, within_s=resolve_s)
    except Overdue as error:
        raise AddressError(
            f"{bind_host!r} was not resolved within {resolve_s:g} s: {error}"
        ) from None
    except (OSError, ValueError) as error:
        raise AddressError(f"{bind_host!r} cannot be resolved: {error}") from None
    addresses = dict.fromkeys(_reachable(ip_address(info[4][0])) for info in found)
    return tuple(addresses)[:MOST_ADDRESSES]


def literal_addresses(bind_host: str) -> tuple[IPAddress, ...] | None:
    """What needs no resolver; ``None`` for a name.

    ``localhost`` is loopback by definition (RFC 6761), but of which family depends on the engine:
    vLLM's own socket is IPv4, uvicorn binds every address of the name, llama-server's HTTP
    library and ``mlx_lm.server`` the first one. So both are asked, whatever the hosts file says.
    """
    host = bind_host.strip().removeprefix("[").removesuffix("]")
    if not host:
        return (LOOPBACK_4,)
    if host.lower() == "localhost":
        return (LOOPBACK_4, LOOPBACK_6)
    try:
        return (_reachable(ip_address(host)),)
    except ValueError:
        return None


def socket_address(address: IPAddress, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    """What ``connect`` takes. An address that is good on one link alone needs the link's number,
    which Python drops from the text. Raises ``OSError`` for a link that is not there.
    """
    if address.version == 4 or address.scope_id is None:
        return str(address), port
    scope = address.scope_id
    link = int(scope) if scope.isdecimal() else socket.if_nametoindex(scope)
    return str(address).partition("%")[0], port, 0, link


def _reachable(bound: IPAddress) -> IPAddress:
    if isinstance(bound, IPv6Address) and bound.ipv4_mapped is not None:
        bound = bound.ipv4_mapped
    if not bound.is_unspecified:
        return bound
    return LOOPBACK_4 if bound.version == 4 else LOOPBACK_6
