"""Asking the real probe process about a host that is made up."""

import os
import time
from collections.abc import Mapping, Sequence

import psutil

from supervisor.contracts.device import AcceleratorInfo
from supervisor.devices.prober import COMMAND, Held, Prober


class Ask:
    """One prober, and what it says about NVIDIA's devices."""

    def __init__(self, env: Mapping[str, str], command: Sequence[str] = COMMAND) -> None:
        self.prober = Prober(command, env={**os.environ, **env})

    def __call__(self) -> Held:
        return self.prober.ask(["nvidia"])["nvidia"]

    def devices(self) -> list[AcceleratorInfo]:
        held = self()
        assert held.state == "ok", held
        return list(held.answer.accelerators)

    def until(self, state: str, limit_s: float = 20.0) -> Held:
        deadline = time.monotonic() + limit_s
        while (held := self()).state != state:
            assert time.monotonic() < deadline, held
            time.sleep(0.05)
        return held

    def close(self) -> None:
        self.prober.close()


def probes() -> list[psutil.Process]:
    """Our children, dead ones too, but for the nursery that other tests keep for the session."""
    return [it for it in psutil.Process().children() if not _is_nursery(it)]


def _is_nursery(process: psutil.Process) -> bool:
    try:
        return "tests.chaos.nursery" in process.cmdline()
    except psutil.Error:
        return False
