"""The bytes of one proved connection: as they are, or inside TLS.

TLS is not verified: whose the server is was proved by its socket. An engine's certificate is often
its own invention and names whatever it likes; and what it would prove about the way to the server,
the kernel has proved already.
"""

import ssl
from functools import cache

import anyio
import anyio.lowlevel

from supervisor.health.dial import Connection
from supervisor.health.outcome import Lost, Miss

FIRST_BYTE = "\x16"
"""Of a TLS handshake, and so of what a client says first (RFC 8446, 5.1)."""
_AT_ONCE = 16 * 1024


class Plain:
    """Bytes as they are."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, data: bytes) -> None:
        """All of it, but what was sent ahead. Raises ``OSError``."""
        ahead, self._connection.ahead = self._connection.ahead, ""
        left = memoryview(data)[len(ahead) :]
        while left:
            try:
                left = left[self._connection.send(left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._connection)

    async def receive(self) -> bytes:
        """What has come, at least a byte; nothing at the end. Raises ``OSError``."""
        while True:
            try:
                data = self._connection.recv(_AT_ONCE)
                if len(data) == _AT_ONCE:  # others run between the parts of a long reply
                    await anyio.lowlevel.checkpoint()
                return data
            except BlockingIOError:
                await anyio.wait_readable(self._connection)


class Tls:
    """Bytes inside TLS. The handshake comes with the first that is sent."""

    def __init__(self, connection: Connection) -> None:
        self._plain = Plain(connection)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context().wrap_bio(self._incoming, self._outgoing)
        self._shaken = False

    async def send(self, data: bytes) -> None:
        """Raises ``OSError``, and ``Miss`` where no TLS comes back."""
        try:
            while not self._shaken:
                try:
                    self._tls.do_handshake()
                    self._shaken = True
                except ssl.SSLWantReadError:
                    await self._flush()
                    if not await self._fill():
                        raise Lost("the server hung up in the middle of TLS") from None
            self._tls.write(data)
            await self._flush()
        except ssl.SSLError as error:
            raise _no_tls(error) from None

    async def receive(self) -> bytes:
        """As ``Plain.receive``; ``Miss`` besides."""
        while True:
            try:
                return self._tls.read(_AT_ONCE)
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    return b""  # few servers take their leave of TLS before they close
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLError as error:
                raise _no_tls(error) from None

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._plain.send(data)

    async def _fill(self) -> bool:
        """Whether anything came before the end."""
        data = await self._plain.receive()
        self._incoming.write(data)
        return bool(data)


@cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _no_tls(error: ssl.SSLError) -> Miss:
    return Miss("malformed", f"no TLS came back: {error.reason or error}")
