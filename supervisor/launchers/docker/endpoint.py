"""Where the container engine listens."""

from collections.abc import Mapping

from supervisor.contracts.config import DockerConfig

USUAL = "/var/run/docker.sock"
_UNIX = "unix://"


def socket_path(config: DockerConfig, env: Mapping[str, str]) -> str:
    """The configured one, else what ``DOCKER_HOST`` says if that is a Unix socket, else the usual.

    An engine of another host is not for us: its devices, files and ports are not this host's.
    """
    said = config.socket or env.get("DOCKER_HOST", "")
    if said.startswith(_UNIX):
        said = said.removeprefix(_UNIX)
    return said if said.startswith("/") else USUAL
