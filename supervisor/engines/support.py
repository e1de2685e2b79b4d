"""Which hosts an engine runs on: a table of its builds, and one way to read every such table."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import UNSET

from supervisor.contracts.engine import EngineRuntimeKind, EngineSupport
from supervisor.contracts.host import Accelerator, HostArch, HostPlatform, HostProfile


@dataclass(frozen=True, slots=True)
class Build:
    """What an engine ships for one kind of device on one platform."""

    needs: str
    """What has to be installed for it, where the ordinary install is something else."""
    arches: tuple[HostArch, ...] = ("x64", "arm64")


Builds = Mapping[tuple[HostPlatform, Accelerator], Build]


def support(
    program: str, builds: Builds, host: HostProfile, *, images: bool = True
) -> EngineSupport:
    """Whether ``program`` runs on ``host``, and how; a refusal names the fact that decides.

    Containers are offered wherever they reach the device, for a launch can name an image where the
    engine has none of its own for it; without ``images`` it is run in none.
    WSL is Linux with its GPUs behind another door; whether a container reaches them is proved, not
    derived, so it decides nothing here but which ROCm is wanted.
    """
    if host.platform == "win32":
        return EngineSupport.unsupported(
            f"the platform is {host.platform}; {program} is launched on Linux (WSL too) and macOS"
        )
    build = builds.get((host.platform, host.accelerator))
    if build is None:
        there = ", ".join(kind for where, kind in builds if where == host.platform)
        if not there:
            return EngineSupport.unsupported(
                f"the platform is {host.platform}, which {program} has no build for"
            )
        return EngineSupport.unsupported(
            f"the accelerator is {host.accelerator}; on {host.platform} {program} is built for "
            f"{there}"
        )
    if host.arch not in build.arches:
        return EngineSupport.unsupported(
            f"the architecture is {host.arch}; for {host.accelerator} on {host.platform} {program} "
            f"is built for {', '.join(build.arches)}"
        )
    without = _not_in_docker(program, host, images=images)
    runtimes: tuple[EngineRuntimeKind, ...] = ("process",) if without else ("process", "docker")
    needs = build.needs
    if host.wsl and host.accelerator == "rocm":
        needs = f"{needs}, with AMD's ROCm for WSL"
    return EngineSupport(
        ok=True,
        runtimes=runtimes,
        needs=needs,
        without={"docker": without} if without else UNSET,
    )


def _not_in_docker(program: str, host: HostProfile, *, images: bool) -> str | None:
    if not images:
        return f"{program} has no image"
    if host.accelerator == "metal":
        return "no container reaches Metal"
    if not host.docker:
        return "no container engine answered"
    if host.accelerator != "cpu" and not host.docker_gpu:
        return "no container was proved to reach the GPU"
    return None
