"""The container engine's API: one call a method, and two ways in which a call can fail.

``EngineDown`` is no answer: the socket is closed, the engine restarts, or hangs; something else
answers in its place, or in words that no engine has. It proves nothing about any container.
``EngineRefused`` is an answer, known by its status and never by its text.

The client library is imported with the first call, in a thread, for it takes half a second that a
daemon without containers has no use for.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from supervisor.launchers.docker.facts import Container, identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aiohttp
    from aiodocker import Docker

ASK_S = 10.0
"""A question that an idle engine answers in a millisecond, and a busy one in a second."""
ACT_S = 120.0
"""Creating, starting and removing wait for disks, and for what a GPU's hooks do."""
LINE_BYTES = 1 << 20
"""The longest line of a progress or event stream."""
_PROXYS = frozenset({502, 503, 504})
"""What somebody in between answers in the engine's place; Docker says 503 of swarms alone."""


class EngineDown(Exception):
    """There was no answer. Whatever was asked for may have been done, or not."""


class EngineRefused(Exception):
    """The engine said no, in words of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message.strip()

    @property
    def missing(self) -> bool:
        """There is no such container, image or volume."""
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """The name is taken, or the container is in no state for it (or being removed)."""
        return self.status == 409


class Engine:
    """Used on one event loop. What it keeps open is closed by ``close``."""

    def __init__(self, socket: str) -> None:
        """``socket`` is a path."""
        self.socket = socket
        self._client: Docker | None = None
        self._settled = False
        """The version spoken is the engine's. Whenever a connection was lost, it may come back as
        another one, which no longer speaks that."""
        self._opened = AsyncExitStack()
        self._opening = anyio.Lock()

    # ── questions ────────────────────────────────────────────────────────────

    async def inspect(self, container: str, of: str | None = None) -> Container | None:
        """By id or name; ``None`` where the engine has none of it.

        ``of`` is the identity of the engine that had it. Raises ``EngineDown`` where another one
        answers, for what that one does not have may live on.
        """
        seen = await self._inspected(container)
        if seen is not None or of is None:
            return seen
        answering = await self.identity()
        if answering != of:
            raise EngineDown(
                f"another container engine ({answering or 'which does not say who it is'}) answers "
                f"at {self.socket} than the one that has container {container[:12]} ({of})"
            )
        return await self._inspected(container)  # that other one may just have left

    async def identity(self) -> str | None:
        """Of the engine that answers now; ``None`` where it does not say."""
        docker = await self._docker()
        try:
            with self._answering(ASK_S, "info"):
                return identity_of(_mapping(await docker.system.info()))
        except EngineRefused:
            return None

    async def _inspected(self, container: str) -> Container | None:
        docker = await self._docker()
        try:
            with self._answering(ASK_S, f"containers/{container}"):
                return _container(await docker.containers.container(container).show())
        except EngineRefused as no:
            if no.missing:
                return None
            raise

    async def has_image(self, image: str) -> bool:
        docker = await self._docker()
        try:
            with self._answering(ASK_S, "image"):
                _mapping(await docker.images.inspect(image))
        except EngineRefused as no:
            if no.missing:
                return False
            raise
        return True

    # ── acts ─────────────────────────────────────────────────────────────────

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """The new container's id."""
        docker = await self._docker()
        with self._answering(ACT_S, "create"):
            return (await docker.containers.create(body, name=name)).id

    async def start(self, container: str) -> None:
        """One that runs already is left as it is."""
        docker = await self._docker()
        with self._answering(ACT_S, "start"):
            await docker.containers.container(container).start()

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal to its main process."""
        docker = await self._docker()
        with self._answering(ACT_S, "kill"):
            await docker.containers.container(container).kill(signal=signal)

    async def unpause(self, container: str) -> None:
        docker = await self._docker()
        with self._answering(ACT_S, "unpause"):
            await docker.containers.container(container).unpause()

    async def remove(self, container: str) -> None:
        """With its anonymous volumes, killing it where it runs."""
        docker = await self._docker()
        with self._answering(ACT_S, "remove"):
            await docker.containers.container(container).delete(force=True, v=True)

    # ── streams ──────────────────────────────────────────────────────────────

    async def wait(self, container: str) -> int | None:
        """Until it does not run; its exit code, where the engine says one.

        Raises ``EngineDown`` where the stream ends without an answer, which is no exit.
        """
        async with self.stream("POST", f"containers/{container}/wait") as response:
            with self._translated("wait"):
                body = await response.read()
        try:
            code = json.loads(body).get("StatusCode")
        except (ValueError, AttributeError):
            raise EngineDown("the wait for a container ended without an answer") from None
        return code if isinstance(code, int) else None

    async def chunks(self, response: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
        """What comes, as it comes. Raises ``EngineDown`` where it breaks off."""
        with self._translated("stream"):
            async for chunk in response.content.iter_any():
                yield chunk

    async def lines(self, response: "aiohttp.ClientResponse") -> AsyncIterator[dict[str, Any]]:
        """The objects of a stream of JSON, until it ends. Raises ``EngineDown`` for half of one."""
        kept = b""
        async for chunk in self.chunks(response):
            *whole, kept = (kept + chunk).split(b"\n")
            for line in whole:
                if line.strip():
                    yield _object(line)
            if len(kept) > LINE_BYTES:
                raise EngineDown("a line without an end came from the container engine")
        if kept.strip():
            yield _object(kept)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        at_once: bool = True,
    ) -> AsyncIterator["aiohttp.ClientResponse"]:
        """An answer that comes in pieces, for as long as it takes. That it comes is said
        ``at_once``, by all but a pull.

        Its connection is closed with the block, whatever ends it: the library itself would leave
        that to the garbage collector.
        """
        import aiohttp

        docker = await self._docker()
        with self._answering(ASK_S if at_once else None, path):
            response = await docker.session.request(
                method,
                f"{docker.docker_host}/{docker.api_version}/{path}",
                params=params,
                headers=headers,
                timeout=aiohttp.ClientTimeout(sock_connect=ASK_S),
            )
        try:
            if response.status in _PROXYS:
                raise EngineDown(
                    f"no container engine answers behind {self.socket} (status {response.status})"
                )
            if response.status >= 400:
                with self._answering(ASK_S, path):
                    body = await response.read()
                raise EngineRefused(response.status, _message(body))
            yield response
        finally:
            response.close()

    # ── the connection ───────────────────────────────────────────────────────

    async def _docker(self) -> "Docker":
        """The client, with its API version settled. Raises ``EngineDown``."""
        if self._client is not None and self._settled:
            return self._client
        async with self._opening:
            if self._client is None:
                await anyio.to_thread.run_sync(_import)
                self._client = await self._open()
            if not self._settled:
                with self._answering(ASK_S, "version"):
                    self._client.api_version = "auto"  # the question itself has no version then
                    version = (await self._client.version())["ApiVersion"]
                    self._client.api_version = f"v{version}"
                self._settled = True
            return self._client

    async def _open(self) -> "Docker":
        import aiodocker
        import aiohttp

        async with AsyncExitStack() as stack:
            # No limit: every container of ours has streams of its own.
            connector = aiohttp.UnixConnector(self.socket, limit=0)
            stack.push_async_callback(connector.close)
            # The connector knows where; the host in the URL is for show.
            docker = aiodocker.Docker(url="unix://localhost", connector=connector)
            stack.push_async_callback(docker.close)
            self._opened = stack.pop_all()
            return docker

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        opened, self._opened, self._client = self._opened, AsyncExitStack(), None
        with anyio.CancelScope(shield=True):
            await opened.aclose()

    @contextmanager
    def _answering(self, within_s: float | None, what: str) -> "Iterator[None]":
        with self._translated(what), anyio.fail_after(within_s):
            yield

    @contextmanager
    def _translated(self, what: str) -> "Iterator[None]":
        """Turn what the client raises into one of the two. ``what`` is for people."""
        import aiodocker
        import aiohttp

        try:
            yield
        except aiodocker.DockerError as error:
            if error.status == 900:  # the library's own, for a connection that failed
                self._settled = False
                raise EngineDown(
                    f"no container engine answers at {self.socket}{_why(error)}"
                ) from error
            if error.status in _PROXYS:
                raise EngineDown(
                    f"no container engine answers behind {self.socket} (status {error.status})"
                ) from error
            raise EngineRefused(error.status, str(error.message)) from error
        except TimeoutError as error:
            raise EngineDown(f"the container engine did not answer in time ({what})") from error
        except (aiohttp.ClientError, OSError) as error:
            self._settled = False
            raise EngineDown(f"the connection to {self.socket} was lost: {error}") from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # The library takes any answer for the engine's own and falls over what is missing.
            raise EngineDown(
                f"what answers at {self.socket} is not understood ({what}): {error!r}"
            ) from error


def _why(error: Exception) -> str:
    """What the system said when the socket was opened, such as that it is denied."""
    cause = getattr(error.__context__, "os_error", None)
    return f": {cause.strerror}" if isinstance(cause, OSError) and cause.strerror else ""


def _import() -> None:
    import aiodocker  # noqa: F401


def _container(said: Mapping[str, Any]) -> Container:
    try:
        return msgspec.convert(said, Container, strict=False)
    except msgspec.ValidationError as error:
        raise EngineDown(f"the container engine's answer is not understood: {error}") from error


def _mapping(said: Any) -> Mapping[str, Any]:
    """Raises ``TypeError`` for anything else, such as a proxy's page."""
    if not isinstance(said, dict):
        raise TypeError("no JSON object")
    return said


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise EngineDown("what the container engine sent is no JSON object")
    return found


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:500].decode(errors="replace")
