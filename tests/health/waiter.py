"""A supervisor in small: waits for a server's readiness and prints what it found.

Arguments: port, the server's pid, milliseconds until the deadline. Prints ``go`` when it starts.
"""

import sys
import time

import anyio

from supervisor.health.address import Addresses
from supervisor.health.pacing import Pace
from supervisor.health.probe import Probe
from supervisor.health.readiness import wait_ready
from tests.health.parts import FdOwner, check


async def main() -> None:
    port, pid, deadline_ms = map(int, sys.argv[1:])
    began = time.monotonic_ns()
    sys.stdout.write("go\n")
    sys.stdout.flush()
    async with Probe(Addresses("127.0.0.1"), port, check(), FdOwner(pid)) as probe:
        verdict = await wait_ready(
            probe,
            interval_ms=1_000,
            since_ns=began,
            deadline_ns=lambda: began + deadline_ms * 1_000_000,
            monotonic_ns=time.monotonic_ns,
            pace=Pace(),
        )
    sys.stdout.write(f"{type(verdict).__name__}\n")


if __name__ == "__main__":
    anyio.run(main)
