"""A scripted stand-in for the engine API, for what a real engine cannot be made to do.

It answers on a Unix socket in the shapes that Docker 20.10 was recorded to answer in. Each route
can be given another answer; every request is kept.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

VERSION = {"ApiVersion": "1.41", "Version": "20.10.24"}
ID = "c" * 64
DYING_S = 0.5


class FakeDocker:
    """Holds one container at most, and says of it what ``state`` says."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.requests: list[str] = []
        self.image = False
        self.body: dict[str, Any] | None = None
        self.status = "created"
        self.pull: Callable[[web.StreamResponse], Awaitable[None]] | None = None
        self.pull_ended = asyncio.Event()
        self.busy_removals = 0
        """So many removals are answered by a 409 first."""
        self.dropped_starts = 0
        """So many starts get no answer: the engine is gone before it gives one."""
        self.pulled: list[str] = []
        """What pulls named."""
        self.auths: list[str | None] = []
        """What pulls said of who asks."""
        self.deaf = False
        """It does not end by itself, and takes a while to die of KILL."""
        self.falls_silent = False
        """Once it was asked to signal the container, it answers nothing more."""
        self.died = asyncio.Event()
        self.signals: list[str] = []
        self.no_start: str | None = None
        """Why starts are refused."""
        self.exit_code = 0
        """Of the program, or what stands for it where that could not be run."""
        self.creates = asyncio.Event()
        """A create goes on once this is set; it is."""
        self.creates.set()
        self.empty_waits = 0
        """So many waits end without an answer."""

    def asked(self, part: str) -> list[str]:
        return [it for it in self.requests if part in it]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/v1.41")
        self.requests.append(f"{request.method} {path}")
        if self.falls_silent and self.signals:
            assert request.transport is not None
            request.transport.abort()
        match request.method, path.strip("/").split("/"):
            case "GET", ["version"]:
                return web.json_response(VERSION)
            case "GET", ["info"]:
                return web.json_response({"ID": "fake", "Runtimes": {"runc": {}}})
            case "GET", ["events"]:
                await asyncio.Event().wait()
            case "GET", ["images", *_, "json"]:
                return web.json_response({}) if self.image else refused(404, "No such image: x")
            case "POST", ["images", "create"]:
                return await self._pull(request)
            case "POST", ["containers", "create"]:
                body = await request.json()
                await self.creates.wait()
                self.body = body
                return web.json_response({"Id": ID, "Warnings": []}, status=201)
            case "POST", ["containers", _, "start"] if self.no_start is not None:
                return refused(400, self.no_start)
            case "POST", ["containers", _, "start"]:
                if self.dropped_starts:
                    self.dropped_starts -= 1
                    assert request.transport is not None
                    request.transport.abort()
                self.status = "running"
                return web.Response(status=204)
            case "POST", ["containers", _, "wait"]:
                if self.empty_waits:
                    self.empty_waits -= 1
                    return web.Response()
                await (self.died.wait() if self.deaf else asyncio.sleep(0.3))
                self.status = "exited"
                return web.json_response({"Error": None, "StatusCode": 0})
            case "POST", ["containers", _, "kill"]:
                self.signals.append(request.query["signal"])
                if self.signals[-1] == "SIGKILL":
                    asyncio.get_running_loop().call_later(DYING_S, self.died.set)
                return web.Response(status=204)
            case "GET", ["containers", _, "json"]:
                return self._inspected()
            case "DELETE", ["containers", _]:
                if self.busy_removals:
                    self.busy_removals -= 1
                    return refused(409, f"removal of container {ID} is already in progress")
                self.body = None
                return web.Response(status=204)
        return refused(404, f"page not found: {path}")

    def _inspected(self) -> web.StreamResponse:
        if self.body is None:
            return refused(404, f"No such container: {ID}")
        running = self.status == "running"
        state = {"Status": self.status, "Running": running, "Paused": False, "OOMKilled": False}
        state |= {
            "Pid": 0,
            "ExitCode": self.exit_code,
            "Error": "",
            "StartedAt": "0001-01-01T00:00:00Z",
        }
        labels = self.body["Labels"]
        return web.json_response(
            {"Id": ID, "Name": "/x", "State": state, "Config": {"Labels": labels}}
        )

    async def _pull(self, request: web.Request) -> web.StreamResponse:
        self.pulled.append(request.query["fromImage"])
        self.auths.append(request.headers.get("X-Registry-Auth"))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            if self.pull is not None:
                await self.pull(response)
        finally:
            self.pull_ended.set()
        return response


def refused(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


async def progress(response: web.StreamResponse, **said: Any) -> None:
    await response.write(json.dumps(said).encode() + b"\r\n")


@asynccontextmanager
async def serving(socket: str) -> AsyncIterator[FakeDocker]:
    fake = FakeDocker(socket)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, socket).start()
    try:
        yield fake
    finally:
        await runner.cleanup()
