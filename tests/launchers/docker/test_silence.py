"""A container engine that takes a question and never answers it, or never ends its answer: every
question has an end all the same.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.config import DockerConfig
from supervisor.launchers.base import CannotTellError, SpawnError, Trace
from supervisor.launchers.docker import engine as engine_module
from supervisor.launchers.docker import launcher as launcher_module
from supervisor.launchers.docker import presence as presence_module
from supervisor.launchers.docker.engine import Engine, EngineDown
from supervisor.launchers.docker.image import have_image
from supervisor.launchers.docker.launcher import DockerLauncher
from supervisor.launchers.docker.presence import Presence

VERSION = json.dumps({"ApiVersion": "1.41"}).encode()
LIMIT_S = 0.3


@asynccontextmanager
async def silent(socket: str, *, knows_itself: bool, drips: bool) -> AsyncIterator[None]:
    """``knows_itself``: it says its version. ``drips``: an answer begins, and comes a byte at a
    time for ever; else none begins.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        try:
            if knows_itself and b"/version" in asked:
                length = f"Content-Length: {len(VERSION)}\r\n\r\n".encode()
                writer.write(head + length + VERSION)
            elif drips:
                writer.write(
                    head.replace(b"200 OK", b"500 Internal Server Error")
                    + b"Content-Length: 100000\r\n\r\n"
                )
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.02)
            else:
                await reader.read()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, socket)
    try:
        yield
    finally:
        server.close()


@pytest.fixture
def socket(tmp_path: Path) -> str:
    """Where it listens."""
    return f"{tmp_path}/s"


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "ASK_S", LIMIT_S)
    monkeypatch.setattr(engine_module, "ACT_S", LIMIT_S)
    monkeypatch.setattr(launcher_module, "CENSUS_S", LIMIT_S)
    monkeypatch.setattr(presence_module, "ANSWER_S", LIMIT_S)


async def _begun(engine: Engine, method: str, path: str) -> None:
    async with engine.stream(method, path):
        pass


QUESTIONS: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "inspect": lambda engine: engine.inspect("x", "of another"),
    "identity": lambda engine: engine.identity(),
    "image": lambda engine: engine.has_image("x"),
    "create": lambda engine: engine.create("x", {}),
    "start": lambda engine: engine.start("x"),
    "kill": lambda engine: engine.kill("x", "SIGTERM"),
    "unpause": lambda engine: engine.unpause("x"),
    "remove": lambda engine: engine.remove("x"),
}
STREAMS: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "wait": lambda engine: engine.wait("x"),
    "events": lambda engine: _begun(engine, "GET", "events"),
    "logs": lambda engine: _begun(engine, "GET", "containers/x/logs"),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("knows_itself", [True, False])
@pytest.mark.parametrize("drips", [True, False])
async def test_each_question_and_each_act_ends(
    socket: str, ask: Callable[[Engine], Awaitable[object]], knows_itself: bool, drips: bool
) -> None:
    async with silent(socket, knows_itself=knows_itself, drips=drips):
        await _is_down(Engine(socket), ask)


@pytest.mark.parametrize("ask", STREAMS.values(), ids=STREAMS)
async def test_each_stream_begins_or_is_none(
    socket: str, ask: Callable[[Engine], Awaitable[object]]
) -> None:
    async with silent(socket, knows_itself=True, drips=False):
        await _is_down(Engine(socket), ask)


async def _is_down(engine: Engine, ask: Callable[[Engine], Awaitable[object]]) -> None:
    try:
        with anyio.fail_after(10), pytest.raises(EngineDown, match="did not answer in time"):
            await ask(engine)
    finally:
        await engine.close()


async def test_a_pull_has_no_end_but_its_budget(socket: str) -> None:
    """Docker says nothing of one before it has heard of the registry."""
    engine = Engine(socket)
    config = DockerConfig(pull="always", pull_timeout_ms=int(LIMIT_S * 3_000))
    async with silent(socket, knows_itself=True, drips=False):
        try:
            began = anyio.current_time()
            with pytest.raises(SpawnError, match=r"could not be pulled within 0\.9 s"):
                await have_image(engine, "x/y:1", config, {}, lambda *_: None)
            assert anyio.current_time() - began > 2 * LIMIT_S
        finally:
            await engine.close()


@pytest.mark.parametrize("drips", [True, False])
async def test_the_census_and_the_profile_end(socket: str, drips: bool) -> None:
    launcher = DockerLauncher(DockerConfig(socket=socket), "0", {})
    async with silent(socket, knows_itself=True, drips=drips):
        with anyio.fail_after(10):
            with pytest.raises(CannotTellError, match="cannot be asked"):
                await launcher.strays(())
            with pytest.raises(CannotTellError, match="cannot be asked"):
                await launcher.bearers(Trace(name="x"))
            assert await Presence(socket).look("cpu") == (False, False)
