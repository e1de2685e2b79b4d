"""A socket in front of a real Docker Engine: what it is told to answer it answers itself, all else
goes through. So a failure can be scripted in the middle of what is real.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

HTML = "<html><body><h1>502 Bad Gateway</h1></body></html>"
"""What a proxy says when nobody is behind it."""


@dataclass(slots=True)
class Script:
    """An answer of our own to requests whose ``METHOD path`` the pattern is found in."""

    pattern: str
    status: int
    body: str
    type_: str
    times: int


class Front:
    """``upstream`` can be changed: then another engine answers on the same socket."""

    def __init__(self, socket: str, upstream: str) -> None:
        self.socket = socket
        self.upstream = upstream
        self.away = False
        """Connections are cut without an answer, as those of an engine that is gone."""
        self.requests: list[str] = []
        self._scripts: list[Script] = []
        self._then: list[tuple[str, Callable[[], None]]] = []

    def answer(
        self,
        pattern: str,
        status: int,
        body: str = '{"message": "scripted"}',
        *,
        type_: str = "application/json",
        times: int = 1 << 30,
    ) -> None:
        self._scripts.append(Script(pattern, status, body, type_, times))

    def then(self, pattern: str, act: Callable[[], None]) -> None:
        """Once such a request has been dealt with, and before its answer is given."""
        self._then.append((pattern, act))

    def as_it_is(self) -> None:
        """No scripts any more."""
        self._scripts.clear()
        self._then.clear()
        self.away = False

    def asked(self, pattern: str) -> list[str]:
        return [it for it in self.requests if re.search(pattern, it)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        what = f"{request.method} {request.path_qs}"
        self.requests.append(what)
        if self.away:
            return _cut(request)
        for script in self._scripts:
            if script.times and re.search(script.pattern, what):
                script.times -= 1
                # The very type: the client library reads what has a charset besides as plain text.
                headers = {"Content-Type": script.type_}
                return web.Response(
                    status=script.status, body=script.body.encode(), headers=headers
                )
        return await self._through(request, what)

    async def _through(self, request: web.Request, what: str) -> web.StreamResponse:
        async with aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(self.upstream), timeout=aiohttp.ClientTimeout()
        ) as session:
            headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
            body = await request.read()
            url = f"http://localhost{request.path_qs}"
            async with session.request(
                request.method, url, data=body or None, headers=headers
            ) as reply:
                for pattern, act in self._then:
                    if re.search(pattern, what):
                        act()
                if self._is_away():
                    return _cut(request)
                passed = {
                    name: value
                    for name, value in reply.headers.items()
                    if name == "Content-Type" or name.startswith("X-")
                }
                response = web.StreamResponse(status=reply.status, headers=passed)
                await response.prepare(request)
                async for chunk in reply.content.iter_any():
                    if self._is_away():
                        return _cut(request)
                    await response.write(chunk)
                return response

    def _is_away(self) -> bool:
        return self.away


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


@asynccontextmanager
async def in_front_of(upstream: str, socket: str) -> AsyncIterator[Front]:
    front = Front(socket, upstream)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", front.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, socket).start()
    try:
        yield front
    finally:
        await runner.cleanup()
