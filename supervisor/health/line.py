"""HTTP over one proved connection, and over no other.

A connector of aiohttp's that owns exactly one connection: it is handed over once, and when it is
gone there is no second one, so that no request can ever reach a server that was not proved. It
says no ``Connection: close``, which would leave the engine's port in TIME_WAIT: who closes first
has it, and that is the probe.
"""

import errno
from dataclasses import dataclass

import aiohttp
import anyio

from supervisor.health.dial import Connection
from supervisor.health.outcome import Lost, Miss

BODY_LIMIT = 64 * 1024
CLOSE_S = 1.0
_AS_LONG_AS_IT_LASTS = 3600.0


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, and which headers go with it."""

    method: str
    path: str
    body: str | None
    headers: dict[str, str]
    limit: int = BODY_LIMIT
    """Bytes of the reply's body that are read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, read up to a bound."""

    status: int
    reason: str
    location: str | None
    body: bytes
    whole: bool


class Line:
    """Requests over one connection, one after the other, until it is closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._handed_over = False
        self._base = f"http://{connection.place}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                socket_factory=self._hand_over,
                resolver=aiohttp.ThreadedResolver(),
                keepalive_timeout=_AS_LONG_AS_IT_LASTS,
                limit=1,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,
            trust_env=False,
        )

    async def ask(self, request: Request) -> Reply:
        """One exchange. Raises ``Miss``, and ``Lost`` when the connection is gone.

        Waits for ever on a silent server: the caller bounds that.
        """
        ahead, self._connection.ahead = self._connection.ahead, ""
        try:
            async with self._session.request(
                request.method.removeprefix(ahead),
                self._base + request.path,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
            ) as response:
                body, whole = await _read(response, request.limit)
                return Reply(
                    response.status,
                    response.reason or "",
                    response.headers.get("Location"),
                    body,
                    whole,
                )
        except OSError as error:
            raise Lost(f"the connection was lost: {error.strerror or error}") from None
        except aiohttp.ServerDisconnectedError:
            raise Lost("the server hung up without a reply") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise Miss("malformed", f"no HTTP came back: {error}") from None

    async def close(self) -> None:
        """Close the connection, in a cancelled task too."""
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._session.close()
        if not self._handed_over:
            self._connection.close()

    def _hand_over(self, _: object) -> Connection:
        """Called a second time once the connection is gone: aiohttp retries by itself."""
        if self._handed_over:
            raise ConnectionResetError(errno.ECONNRESET, "the server hung up")
        self._handed_over = True
        return self._connection


async def _read(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """At most ``limit`` bytes, and whether that was all of it."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= limit:
            return bytes(body[:limit]), False
    return bytes(body), True
