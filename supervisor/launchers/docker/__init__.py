"""Engines in containers, through the API of Docker or of one that speaks it (Podman).

Nothing here imports the HTTP client before a container is first dealt with.
"""

from supervisor.launchers.docker.endpoint import socket_path
from supervisor.launchers.docker.launcher import DockerLauncher
from supervisor.launchers.docker.presence import Presence

__all__ = ["DockerLauncher", "Presence", "socket_path"]
