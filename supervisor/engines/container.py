"""How an engine runs in a container: its image, and where the model and the port are inside."""

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from supervisor.contracts.engine import LaunchPlan, LaunchRequest, Mount, PortBinding
from supervisor.contracts.host import Accelerator, HostProfile
from supervisor.engines.address import EVERYWHERE

_HUB = re.compile(r"(.*/models--[^/]+)/(snapshots/.+)", re.DOTALL)
"""A model in the Hugging Face cache: files there are links that lead out of their own folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """How an engine's image is run."""

    image: Callable[[HostProfile], str | None]
    port: int
    """The port inside, which stays what the image expects."""
    models: str = "/models"
    """Where the model is mounted, read-only."""
    command: tuple[str, ...] = ()
    """What follows the image's entrypoint before our flags."""
    model_by_flag: frozenset[Accelerator] = frozenset()
    """Whose images want a flag before a model that is otherwise written bare; an image that the
    launch names gets it as well, for older entrypoints took nothing else."""
    with_siblings: bool = False
    """Mount the folder that the model lies in, for a model of several files side by side."""
    caches: Mapping[str, str] = field(default_factory=dict)
    """Named volumes and where they go: a second start is far shorter with what the first made."""
    shm_bytes: int | UnsetType = UNSET
    ulimits: Mapping[str, int] = field(default_factory=dict)
    """On GPUs alone, where engines pin memory: not every host may raise them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the engine runs, as it sees it itself and as others reach it."""

    listen_host: str
    listen_port: int
    model: str
    port: PortBinding
    mounts: tuple[Mount, ...] = ()


def in_container(request: LaunchRequest, container: Container, host: str, port: int) -> Place:
    """Inside, the engine listens everywhere on its image's port; outside, where it is asked to.

    On the host's own network there is no inside: it listens where it is asked to.
    """
    path = request.model_path.rstrip("/") or "/"
    folder, inside = posixpath.split(path)
    if hub := _HUB.fullmatch(path):
        folder, inside = hub[1], f"{posixpath.basename(hub[1])}/{hub[2]}"
        mount = Mount(from_=folder, to=_joined(container.models, folder), read_only=True)
    elif container.with_siblings and folder.strip("/"):  # never the whole of "/"
        mount = Mount(from_=folder, to=container.models, read_only=True)
    else:
        mount = Mount(from_=path, to=_joined(container.models, path), read_only=True)
    inner = port if request.host_network else container.port
    caches = (Mount(from_=name, to=to, read_only=False) for name, to in container.caches.items())
    return Place(
        listen_host=host if request.host_network else EVERYWHERE,
        listen_port=inner,
        model=f"{container.models}/{inside}",
        port=PortBinding(container=inner, host=port),
        mounts=(mount, *caches),
    )


def _joined(models: str, path: str) -> str:
    return f"{models}/{posixpath.basename(path)}"


def with_image(plan: LaunchPlan, request: LaunchRequest, container: Container) -> LaunchPlan:
    """The plan with what only a container has. No image is no error here: preflight says so."""
    return replace(
        plan,
        image=request.docker_image or container.image(request.host) or UNSET,
        shm_bytes=container.shm_bytes,
        ulimits=(request.host.accelerator != "cpu" and dict(container.ulimits)) or UNSET,
    )


def model_by_flag(request: LaunchRequest, container: Container) -> bool:
    """Whether the image's entrypoint wants a flag before the model."""
    named = bool(request.docker_image) or request.host.accelerator in container.model_by_flag
    return request.runtime == "docker" and named
