"""``engined``: the composition root. Reads the configuration, wires the rooms, runs until told."""

from supervisor.daemon.main import main

__all__ = ["main"]
