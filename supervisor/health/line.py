"""HTTP over one proved connection, and over no other.

The socket was proved before any byte is spoken, so no library may open one of its own: h11 knows
the protocol and does no I/O. Nothing here says ``Connection: close``, which would leave the
engine's port in TIME_WAIT: who closes first has it, and that is the probe.
"""

from dataclasses import dataclass

import h11

from supervisor.health.dial import Connection
from supervisor.health.outcome import Lost, Miss
from supervisor.health.wire import Plain, Tls

HEAD_LIMIT = 32 * 1024
BODY_LIMIT = 64 * 1024
_HTTP = b"HTTP/"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, and which headers go with it."""

    method: str
    path: str
    body: str | None
    headers: dict[str, str]
    limit: int = BODY_LIMIT
    """Bytes of the reply's body that are read."""

    @property
    def room(self) -> int:
        """Bytes that a reply may take as it comes, its framing and interim replies among them."""
        return 2 * (HEAD_LIMIT + self.limit)


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

    def __init__(self, connection: Connection, *, tls: bool = False) -> None:
        self._connection = connection
        self._wire = Tls(connection) if tls else Plain(connection)
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)

    async def ask(self, request: Request) -> Reply:
        """One exchange. Raises ``Miss``, and ``Lost`` when the connection is gone.

        Waits for ever on a silent server: the caller bounds that.
        """
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            raise Lost("the server hung up after its last reply")
        try:
            await self._wire.send(self._written(request))
            return await self._reply(request)
        except OSError as error:
            raise Lost(f"the connection was lost: {error.strerror or error}") from None
        except (h11.ProtocolError, ValueError) as error:
            raise Miss("malformed", f"no HTTP came back: {error}") from None

    def close(self) -> None:
        self._connection.close()

    def _written(self, request: Request) -> bytes:
        body = (request.body or "").encode()
        headers = [("Host", self._connection.host), *request.headers.items()]
        if request.body is not None:
            headers.append(("Content-Length", str(len(body))))
        head = h11.Request(method=request.method, target=request.path, headers=headers)
        parts = (head, h11.Data(body), h11.EndOfMessage()) if body else (head, h11.EndOfMessage())
        return b"".join(self._http.send(part) or b"" for part in parts)

    async def _reply(self, request: Request) -> Reply:
        head: h11.Response | None = None
        body = bytearray()
        came = 0
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                data = await self._wire.receive()
                if not data and head is None:
                    raise Lost("the server hung up without a reply")
                # h11 would wait for the end of a head that is none.
                if not came and not _HTTP.startswith(data[: len(_HTTP)]):
                    raise Miss("malformed", f"no HTTP came back: {data[:80]!r}")
                came += len(data)
                if came > request.room:
                    raise Miss("malformed", f"more than {request.room} bytes came back")
                self._http.receive_data(data)
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) >= request.limit:
                    return _reply(head, bytes(body[: request.limit]), whole=False)
            elif isinstance(event, h11.EndOfMessage):
                return _reply(head, bytes(body), whole=True)


def _reply(head: h11.Response | None, body: bytes, *, whole: bool) -> Reply:
    assert head is not None, "h11 gives a body only after its head"
    location = next((value for name, value in head.headers if name == b"location"), None)
    return Reply(
        head.status_code,
        head.reason.decode("latin-1"),
        None if location is None else location.decode("latin-1"),
        body,
        whole,
    )
