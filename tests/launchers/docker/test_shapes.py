"""The scripted engine answers in the real one's shapes: what it says, the real one says too."""

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from supervisor.launchers.docker.ask import ask
from supervisor.launchers.docker.engine import EngineRefused
from tests.parts.dockerd import TINY, Dockerd
from tests.parts.fake_docker import serving

BODY = {"Image": TINY, "Cmd": ["true"], "Labels": {"a": "b"}}


def answers(socket: str) -> dict[str, Any]:
    """One of each kind that the launcher asks for. Blocks."""
    body = json.dumps({**BODY, "HostConfig": {"NetworkMode": "none", "Init": True}}).encode()
    created = ask(socket, "/containers/create?name=shape", "POST", 20, body)
    container = f"/containers/{created['Id']}"
    return {
        "version": ask(socket, "/version"),
        "created": created,
        "inspected": ask(socket, f"{container}/json"),
        "started": ask(socket, f"{container}/start", "POST", 20),
        "waited": ask(socket, f"{container}/wait", "POST", 20),
        "removed": ask(socket, f"{container}?force=1", "DELETE", 20),
        "no container": refusal(socket, f"{container}/json"),
        "no image": refusal(socket, "/images/none:1/json"),
    }


def refusal(socket: str, what: str) -> int:
    """Its status, which is all that counts of one."""
    with pytest.raises(EngineRefused) as refused:
        ask(socket, what)
    return refused.value.status


def beyond(fake: Any, real: Any, where: str = "") -> list[str]:
    """Where the fake says more than the real one, or another type of thing."""
    if isinstance(fake, dict) and isinstance(real, dict):
        missing = [f"{where}.{key}" for key in fake if key not in real]
        both = [key for key in fake if key in real]
        return missing + [
            it for key in both for it in beyond(fake[key], real[key], f"{where}.{key}")
        ]
    if fake is None or real is None:
        return []
    return [] if type(fake) is type(real) else [f"{where}: {fake!r} and {real!r}"]


@pytest.mark.anyio
async def test_the_fake_has_the_real_one_s_shapes(tmp_path: Path, dockerd: Dockerd) -> None:
    async with serving(f"{tmp_path}/s") as fake:
        scripted = await anyio.to_thread.run_sync(answers, fake.socket)
    real = await anyio.to_thread.run_sync(answers, dockerd.socket)
    assert beyond(scripted, real) == []
    assert scripted["no container"] == real["no container"]
    assert scripted["no image"] == real["no image"]
