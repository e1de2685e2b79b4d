"""What a journal must tell, whatever happened to the daemons that wrote it.

The rule, for each attempt of each launch: it begins with ``reserved`` or ``restarting``, and ends
with the next ``restarting`` or with its launch. Once it has ended, an attempt that had begun to
bring an engine up has told either ``ready``, once, or ``launch-failed``, once, and never both; one
that was ready and ended has told how: ``exited``, ``reaped`` or ``stopped``.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


class Line(msgspec.Struct, frozen=True):
    """As much of an event as the rule is about."""

    seq: int
    epoch: str
    kind: str
    instance: str | None = None
    nonce: str | None = None
    attempt: int | None = None


@dataclass(slots=True)
class Told:
    """One attempt."""

    begun: str
    kinds: Counter[str] = field(default_factory=Counter)

    def wrong(self, *, ended: bool) -> str | None:
        ready, failed = self.kinds["ready"], self.kinds["launch-failed"]
        if ready > 1 or failed > 1 or (ready and failed):
            return f"ready {ready} times and launch-failed {failed} times"
        if not ended:
            return None
        if ready and not self.kinds & Counter(("exited", "reaped", "stopped")):
            return "ready, and not a word about its end"
        brought_up = self.begun == "reserved" or self.kinds["launching"]
        return "neither ready nor launch-failed" if brought_up and not ready + failed else None


def lines(path: Path) -> list[Line]:
    decoder = msgspec.json.Decoder(Line)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]


def gaps(journal: Iterable[Line]) -> list[str]:
    """Where the numbers are not contiguous."""
    found, last = [], None
    for line in journal:
        if last is not None and (line.seq, line.epoch) != (last.seq + 1, last.epoch):
            found.append(f"{line.epoch}:{line.seq} after {last.epoch}:{last.seq}")
        last = line
    return found


def misreported(journal: Iterable[Line], living: Iterable[str]) -> list[str]:
    """Attempts that broke the rule. ``living`` are the nonces that have a record."""
    launches: dict[str, list[Told]] = {}
    names: dict[str, str] = {}
    for line in journal:
        if line.nonce is None:
            continue
        names[line.nonce] = line.instance or ""
        attempts = launches.setdefault(line.nonce, [])
        if line.kind in ("reserved", "restarting"):
            attempts.append(Told(line.kind))
        elif not attempts:
            attempts.append(Told("reserved"))
        attempts[-1].kinds[line.kind] += 1
    found, alive = [], set(living)
    for nonce, attempts in launches.items():
        for number, told in enumerate(attempts, 1):
            ended = nonce not in alive or number < len(attempts)
            if wrong := told.wrong(ended=ended):
                found.append(f"{names[nonce]} {nonce[:8]}, attempt {number}: {wrong}")
    return found
