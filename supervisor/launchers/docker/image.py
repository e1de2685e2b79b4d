"""The image of a launch: there already, or pulled first, with news of how far that has come."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from supervisor.contracts.config import DockerConfig
from supervisor.contracts.failure import SpawnReason
from supervisor.launchers.base import SpawnError
from supervisor.launchers.docker.credentials import registry_auth
from supervisor.launchers.docker.engine import Engine, EngineRefused

Tell = Callable[[str, str], None]
TELL_S = 1.0
"""Between two words about the same pull: a fast one sends hundreds a second."""
_REFUSALS = frozenset({400, 401, 403, 404})
"""Answers that waiting does not change."""


async def have_image(
    engine: Engine, image: str, config: DockerConfig, env: Mapping[str, str], tell: Tell
) -> None:
    """Return once the image is there. Raises ``SpawnError``, and ``EngineDown``."""
    if not image:
        raise SpawnError("no image is known for this engine and host; name one", "image")
    try:
        if config.pull != "always" and await engine.has_image(image):
            return
        if config.pull == "never":
            raise SpawnError(f"there is no image {image} here, and `pull` is `never`", "image")
        tell("pulling", image)
        with anyio.fail_after(config.pull_timeout_ms / 1000):
            await _pull(engine, image, await registry_auth(image, env), tell)
    except TimeoutError:
        limit = f"{config.pull_timeout_ms / 1000:g} s"
        raise SpawnError(f"the image {image} could not be pulled within {limit}") from None
    except EngineRefused as no:
        reason: SpawnReason | None = "image" if no.status in _REFUSALS else None
        raise SpawnError(f"the image {image} cannot be had: {no.message}", reason) from no
    tell("pulled", image)


async def _pull(engine: Engine, image: str, auth: str | None, tell: Tell) -> None:
    """Raises ``EngineRefused``, also for what goes wrong after the engine said that all is well."""
    progress = Progress()
    told = -TELL_S
    headers = {} if auth is None else {"X-Registry-Auth": auth}
    where = {"fromImage": image if has_tag(image) else f"{image}:latest"}
    pulling = engine.stream("POST", "images/create", where, headers, at_once=False)
    async with pulling as response:
        async for said in engine.lines(response):
            if "error" in said or "errorDetail" in said:
                raise _refusal(said)
            now = anyio.current_time()
            if progress.hear(said) and now - told >= TELL_S:
                told = now
                tell("pulling", progress.text)
    if not await engine.has_image(image):
        raise EngineRefused(500, "the engine said that it was, and does not have it")


def has_tag(image: str) -> bool:
    """Whether a reference names a tag or a digest. Without one the engine would pull all tags."""
    last = image.rpartition("/")[2]
    return ":" in last or "@" in last


def _refusal(said: Mapping[str, Any]) -> EngineRefused:
    detail = said.get("errorDetail")
    detail = detail if isinstance(detail, dict) else {}
    message = detail.get("message") or said.get("error") or "an error that the engine does not name"
    code = detail.get("code")
    return EngineRefused(code if isinstance(code, int) else 500, str(message))


@dataclass(slots=True)
class Progress:
    """Layers and bytes, from the messages of a pull."""

    _layers: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    def hear(self, said: Mapping[str, Any]) -> bool:
        """Take one message; whether it was about a layer."""
        layer, status = said.get("id"), said.get("status")
        if (
            not isinstance(layer, str)
            or not isinstance(status, str)
            or status.startswith("Pulling from")
        ):
            return False
        numbers = said.get("progressDetail")
        numbers = numbers if isinstance(numbers, dict) else {}
        now, whole = numbers.get("current"), numbers.get("total")
        _, had, total = self._layers.get(layer, ("", 0, 0))
        if status == "Downloading" and isinstance(now, int):
            had, total = now, whole if isinstance(whole, int) else total
        elif status in _WHOLE:
            had = total
        self._layers[layer] = status, had, total
        return True

    @property
    def text(self) -> str:
        done = sum(status in _DONE for status, _, _ in self._layers.values())
        had = sum(layer[1] for layer in self._layers.values())
        total = sum(layer[2] for layer in self._layers.values())
        newest = list(self._layers)[-1]
        return (
            f"{done} of {len(self._layers)} layers, {had >> 20} of {total >> 20} MiB; "
            f"{newest}: {self._layers[newest][0]}"
        )


_DONE = frozenset({"Pull complete", "Already exists"})
_WHOLE = _DONE | {"Download complete", "Verifying Checksum", "Extracting"}
