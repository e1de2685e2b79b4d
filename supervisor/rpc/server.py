"""The JSON-RPC server: a listening Unix socket and the connections that came of it."""

import asyncio

import anyio.to_thread

from supervisor.bus import Bus
from supervisor.contracts.config import AccessConfig
from supervisor.lifecycle.api import Supervisor
from supervisor.rpc.connection import Connection
from supervisor.rpc.peers import Role, role_of
from supervisor.rpc.shares import MAX_CONNECTIONS, Shares
from supervisor.rpc.socket import BACKLOG, Listener

CLOSE_SECONDS = 1.0
"""How long clients have, when the daemon leaves, to take what was written for them."""


class RpcServer:
    """Serves one supervisor on one socket. Used as ``async with``, or by start and close.

    ``access`` may be replaced while it runs, and is in effect at once for who is connected, too.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        bus: Bus,
        listener: Listener,
        access: AccessConfig,
        *,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.supervisor = supervisor
        self.bus = bus
        self._access = access
        self.tasks: set[asyncio.Task[None]] = set()
        self._listener = listener
        self._shares = Shares(max_connections)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def __aenter__(self) -> "RpcServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Take connections. Those made since the socket listens have waited in its backlog."""
        # Not create_unix_server: from 3.13 on it removes the file itself, whoever's it is.
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self), sock=self._listener.sock, backlog=BACKLOG
        )

    async def close(self) -> None:
        """Take no more connections, answer who waits with ``unavailable``, and hang up."""
        if self._server is not None:
            self._server.close()
        await anyio.to_thread.run_sync(self._listener.close)
        for connection in tuple(self._connections):
            connection.stop()
        running = tuple(self.tasks)
        for task in running:
            if not task.cancelling():  # its connection was lost before
                task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._empty.wait()
        except TimeoutError:
            for connection in tuple(self._connections):
                connection.abort()
            await self._empty.wait()

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def access(self) -> AccessConfig:
        return self._access

    @access.setter
    def access(self, access: AccessConfig) -> None:
        self._access = access
        for connection in tuple(self._connections):
            connection.take_role()

    # The hub that connections know.

    def admit(self, connection: Connection, uid: int | None) -> bool:
        admin = role_of(uid, self._access) is Role.ADMIN
        if not self._shares.admit(connection, uid, admin=admin):
            return False
        self._connections.add(connection)
        self._empty.clear()
        return True

    def keep(self, connection: Connection, unfinished: int) -> bool:
        return self._shares.keep(connection, unfinished)

    def forget(self, connection: Connection) -> None:
        self._shares.leave(connection)
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()
