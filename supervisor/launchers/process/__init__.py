"""Engines as processes of this host, each started through a gate and watched by its pidfd."""

from supervisor.launchers.process.cgroups import Cgroups
from supervisor.launchers.process.launcher import ProcessLauncher

__all__ = ["Cgroups", "ProcessLauncher"]
