"""The probe of one instance: asks its engine, and believes no one else.

Order: connect, prove that the server is a member of the instance's tree, ask, judge the reply.
Nothing is sent to a server that is not proved, and a refused connect never gets as far as HTTP.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

import anyio
from msgspec import UNSET

from supervisor.contracts.engine import HealthCheck
from supervisor.health.address import AddressError, Addresses, IPAddress
from supervisor.health.body import not_ready_reason
from supervisor.health.dial import Connection, dial, where
from supervisor.health.line import Line, Reply, Request
from supervisor.health.outcome import Lost, Miss, NotReady, Outcome, Ready, printable
from supervisor.health.proof import Owner, prove, published
from supervisor.health.wire import FIRST_BYTE

DEFAULT_TIMEOUT_MS = 5_000
WORK_TIMEOUT_S = 30.0
"""For a request that makes an engine do some of its real work, the first of which may compile.

One that is given up is not undone: mlx_lm.server still answers each, into closed connections.
"""
PUBLISHER_S = 1.0
"""Beyond a probe's own time, to learn what its answer is worth."""

_TRY_THE_NEXT = frozenset({"refused", "unreachable", "foreign"})
_EXCERPT = 4096
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""None of them may be in a reason phrase (RFC 9112, 4), and h11 lets most of them pass."""


class Denied(Miss):
    """The server is there and wants a key that we do not have."""


class Probe:
    """Never more than one connection of it waits in the engine's backlog.

    A hung engine takes no connection out of its backlog, not even one that was closed, and a
    probe every ten seconds would fill that up. So one that was not accepted in time is kept, and
    the next probe goes on waiting with it.
    """

    last: Outcome | None = None
    """The latest answer, whoever asked."""

    def __init__(
        self,
        addresses: Addresses,
        port: int,
        check: HealthCheck,
        owner: Owner,
        *,
        api_key: str | None = None,
        tls: bool = False,
        mask: Callable[[str], str] = str,
    ) -> None:
        """``mask`` takes secrets out of what a server says, before it is cut to be shown."""
        self._addresses = addresses
        self._port = port
        self._owner = owner
        self._api_key = api_key
        self._tls = tls
        self._mask = mask
        timeout_ms = DEFAULT_TIMEOUT_MS if check.timeout_ms is UNSET else check.timeout_ms
        self._timeout_s = timeout_ms / 1000
        self._authorization = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._health = self._request("GET", check.path)
        self._requests = [self._health]
        if (proof := check.ready) is not UNSET:
            self._requests.append(self._request(proof.method, proof.path, proof.body))
        self._deep: Request | None = None
        if (deep := check.deep) is not UNSET:
            self._deep = self._request(deep.method, deep.path, deep.body)
        self._busy = anyio.Lock(fast_acquire=True)
        self._published = False
        self._parked: Connection | None = None
        self._kept: Line | None = None

    async def readiness(self, within_s: float | None = None) -> Outcome:
        """Ask on fresh connections: the health path and then, where there is one, the request
        that proves more. ``within_s`` cuts the probe's own timeout short.
        """
        limit = self._timeout_s
        if len(self._requests) > 1:
            limit = max(limit, WORK_TIMEOUT_S)
        return await self._outcome_of(
            self._ask_afresh, limit if within_s is None else min(within_s, limit)
        )

    async def health(self) -> Outcome:
        """Ask the health path of an engine that had been ready, on the kept connection.

        That one may have been closed meanwhile (uvicorn and llama-server do so after 5 s): it is
        replaced, and only the fresh one counts.
        """
        return await self._outcome_of(self._ask_kept, self._timeout_s, counts=True)

    async def deep(self) -> Outcome:
        """Make the engine do a little of its real work, on a fresh connection; where its check
        knows no such request, as ``health``. An engine that is full of work lets this one queue.
        """
        if self._deep is None:
            return await self.health()
        limit = max(self._timeout_s, WORK_TIMEOUT_S)
        return await self._outcome_of(self._ask_deeply, limit, counts=True)

    async def page(self, path: str, *, limit: int, within_s: float) -> Reply:
        """What the engine has at ``path``, up to ``limit`` bytes, on a fresh proved connection.

        Any status is a reply. Raises ``Miss`` where there is none.
        """
        request = replace(self._request("GET", path), limit=limit)
        deadline = anyio.current_time() + within_s
        with anyio.CancelScope(deadline=deadline):
            async with self._busy, self._vouched(deadline):
                line = await self._open(request, deadline)
                try:
                    return await line.ask(request)
                finally:
                    line.close()
        raise Miss("timeout", f"GET {path}: not answered in time")

    async def close(self) -> None:
        """Close what is open between probes. A probe in flight is its own task's to cancel."""
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.close()
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _outcome_of(
        self, ask: Callable[[float], Awaitable[str]], limit_s: float, *, counts: bool = False
    ) -> Outcome:
        """``counts``: a miss is held against the engine."""
        async with self._busy:
            deadline = anyio.current_time() + limit_s
            try:
                async with self._vouched(deadline, counts=counts):
                    text = await ask(deadline)
                self.last = Ready(self._shown(text))
            except Miss as miss:
                # By far the most frequent one, whose words are ours and harmless.
                text = miss.text if miss.kind == "refused" else self._shown(miss.text)
                self.last = NotReady(miss.kind, text)
            return self.last

    @asynccontextmanager
    async def _vouched(self, deadline: float, *, counts: bool = False) -> AsyncIterator[None]:
        """Around a question, where the port is published by somebody else: proved before it and
        after it. A miss for which that somebody may be the reason is none of the engine's; one
        that counts is worth asking anew, those of a start come too many a second for that.
        """
        self._published = await self._publisher_says(deadline)
        try:
            yield
        except Miss:
            if self._published:
                await self._publisher_says(deadline + PUBLISHER_S, again=counts)
            raise
        if self._published:
            await self._publisher_says(deadline + PUBLISHER_S, again=True)

    async def _publisher_says(self, deadline: float, *, again: bool = False) -> bool:
        with anyio.CancelScope(deadline=deadline):
            return await published(self._owner, self._port, again=again)
        raise Miss("unproved", "who publishes the port did not answer in time")

    async def _ask_afresh(self, deadline: float) -> str:
        text = ""
        for request in self._requests:
            until = deadline
            if request is self._health:
                until = min(deadline, anyio.current_time() + self._timeout_s)
            line = await self._open(request, until)
            try:
                text = await _ask(line, request, until)
            finally:
                line.close()
        return text

    async def _ask_deeply(self, deadline: float) -> str:
        assert self._deep is not None, "only asked where there is one"
        line = await self._open(self._deep, deadline)
        try:
            return await _ask(line, self._deep, deadline)
        except Denied:
            # TabbyAPI makes up a key of its own where it gets none, and only its health is open.
            return await self._ask_kept(deadline)
        finally:
            line.close()

    async def _ask_kept(self, deadline: float) -> str:
        line, self._kept = self._kept, None
        if line is not None:
            with suppress(Lost):
                return await self._ask_and_keep(line, deadline)
        return await self._ask_and_keep(await self._open(self._health, deadline), deadline)

    async def _ask_and_keep(self, line: Line, deadline: float) -> str:
        try:
            text = await _ask(line, self._health, deadline)
        except BaseException:
            line.close()
            raise
        self._kept = line
        return text

    async def _open(self, request: Request, deadline: float) -> Line:
        """A proved connection to the first address that has our engine."""
        parked, self._parked = self._parked, None
        if parked is not None and self._opening(request).startswith(parked.ahead):
            with suppress(Lost):
                return await self._proved(parked, request, deadline)
        elif parked is not None:
            parked.close()
        worst: Miss | None = None
        for address in await self._known(deadline):
            try:
                connection = await self._dial(address, deadline)
                return await self._proved(connection, request, deadline)
            except Miss as miss:
                if miss.kind not in _TRY_THE_NEXT:
                    raise
                if worst is None or miss.kind == "foreign":
                    worst = miss
        self._addresses.nobody_there()
        raise worst or Miss("unreachable", "there is no address to ask")

    async def _known(self, deadline: float) -> Sequence[IPAddress]:
        try:
            with anyio.CancelScope(deadline=deadline):
                return await self._addresses.known()
        except AddressError as error:
            raise Miss("unproved", str(error)) from None
        raise Miss("unproved", "the bind host was not resolved in time")

    async def _dial(self, address: IPAddress, deadline: float) -> Connection:
        with anyio.CancelScope(deadline=deadline):
            return await dial(address, self._port)
        raise Miss("timeout", f"{where(address, self._port)}: not connected in time")

    async def _proved(self, connection: Connection, request: Request, deadline: float) -> Line:
        try:
            with anyio.CancelScope(deadline=deadline):
                if not self._published:
                    await prove(connection, self._owner, self._opening(request))
                return Line(connection, tls=self._tls)
        except BaseException:
            connection.close()
            raise
        self._parked = connection
        raise Miss("timeout", f"{connection.place}: connected, not accepted in time")

    def _opening(self, request: Request) -> str:
        """What is said first on a connection, of which a letter may have to go ahead."""
        return FIRST_BYTE if self._tls else request.method

    def _request(self, method: str, path: str, body: str | None = None) -> Request:
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", **self._authorization}
        if body is not None:
            headers["Content-Type"] = "application/json"
        return Request(method, "/" + path.lstrip("/"), body, headers)

    def _shown(self, text: str) -> str:
        """A server may well repeat the key that it was sent."""
        shown = text.replace(self._api_key, "***") if self._api_key else text
        return printable(self._mask(shown))


async def _ask(line: Line, request: Request, deadline: float) -> str:
    """The reply in words, if it means ready."""
    with anyio.CancelScope(deadline=deadline):
        return _judged(await line.ask(request), request)
    raise Miss("timeout", f"{request.method} {request.path}: not answered in time")


def _judged(reply: Reply, request: Request) -> str:
    said = f"{request.method} {request.path}: HTTP {reply.status}"
    if _CONTROL.search(reply.reason):
        raise Miss("malformed", f"{said} with control characters: {reply.reason}")
    if reply.location is not None and 300 <= reply.status < 400:
        raise Miss("status", f"{said} to {reply.location}, which is not followed")
    if not 200 <= reply.status < 300:
        told = reply.body[:_EXCERPT].decode("utf-8", "replace").strip()
        denied = reply.status in (401, 403)
        raise (Denied if denied else Miss)("status", f"{said} {reply.reason} {told}".rstrip())
    reason = not_ready_reason(reply.body, whole=reply.whole)
    if reason is not None:
        raise Miss("loading", f"{said}, but {reason}")
    return said
