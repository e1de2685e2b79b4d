"""A container whose GPU is taken from it while it runs: its own log is all that tells.

The driver and the container engine see nothing of it, and the engine may answer its health checks
for as long as nobody asks it for tokens. So it is a warning and no verdict.
"""

from typing import Final

import anyio

from supervisor.contracts.failure import Diagnosis
from supervisor.contracts.instance import DockerHandle
from supervisor.engines.diagnosis import withdrawal
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger
from supervisor.logs.growth import Grown

CODE: Final = "device-withdrawn"


async def warn_if_withdrawn(house: House, ledger: Ledger) -> None:
    """Once an attempt, however often it says so. Returns where there is nothing to wait for."""
    path = ledger.supervision.log_path
    if not isinstance(ledger.record.ref, DockerHandle) or path is None or CODE in ledger.told:
        return
    told = anyio.Event()

    def hear(grown: Grown[Diagnosis | None]) -> None:
        found = grown.found
        if found is not None and not told.is_set():
            told.set()
            ledger.warn_once(CODE, f"{found.summary}: {found.evidence!r}; {found.hint}")

    async with house.logs.reading(path, 0, _sift, hear, slow=True):
        await told.wait()


def _sift(lines: tuple[str, ...]) -> Diagnosis | None:
    return withdrawal("\n".join(lines))
