"""``engined``: the composition root. Reads the configuration, wires the rooms, runs until told."""

import gc

# What is imported stays: to look for garbage in between costs an eighth of the imports' time.
gc.disable()

from supervisor.daemon.main import main  # noqa: E402 - the imports are what the line above is for

gc.enable()

__all__ = ["main"]
