"""Which devices a launch gets that only says how many. Pure, and the same for the same host.

The order is stated, so that a person can foretell it:

1. the most free memory: the set whose fullest device has the most left, for an engine that spans
   devices takes the same of each;
2. the closest together: no pair far apart, then the nearest in sum (NVLink, one board, PCIe
   switches, a host bridge, a NUMA node, the system);
3. the fewest holders, where devices are shared;
4. the lowest index.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Final, get_args

from supervisor.contracts.device import DeviceLink
from supervisor.contracts.host import DeviceId

STEP_BYTES: Final = 1 << 30
"""Memory is compared in these: what a driver keeps for itself differs by less, and must not decide
against a link of their own.
"""
MOST_SETS: Final = 2_000
"""So many sets are compared one by one; beyond, a set grows from each of the first devices."""
SEEDS: Final = 8

_FAR: Final[dict[DeviceLink, int]] = {
    link: distance for distance, link in enumerate(get_args(DeviceLink))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A device that could be had, as far as the choice depends on it."""

    id: DeviceId
    index: int
    free_bytes: int | None = None
    """Null counts as none: a device that does not tell its memory is taken last."""
    holders: int = 0
    numa_node: int | None = None
    links: Mapping[DeviceId, DeviceLink] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return round((self.free_bytes or 0) / STEP_BYTES)


Key = tuple[int, int, int, tuple[int, ...]]


def choose(candidates: Sequence[Candidate], need: int) -> tuple[DeviceId, ...]:
    """The best ``need`` of at least as many, lowest index first."""
    least = sorted((it.steps for it in candidates), reverse=True)[need - 1]
    ample = sorted((it for it in candidates if it.steps >= least), key=_alone)
    if comb(len(ample), need) <= MOST_SETS:
        best = min(combinations(ample, need), key=_together)
    else:
        best = min((_grown(seed, ample, need) for seed in ample[:SEEDS]), key=_together)
    return tuple(it.id for it in sorted(best, key=lambda it: it.index))


def _alone(device: Candidate) -> tuple[int, int]:
    return device.holders, device.index


def _together(devices: Sequence[Candidate]) -> Key:
    distances = [distance(one, other) for one, other in combinations(devices, 2)]
    return (
        max(distances, default=0),
        sum(distances),
        sum(it.holders for it in devices),
        tuple(sorted(it.index for it in devices)),
    )


def _grown(seed: Candidate, pool: Sequence[Candidate], need: int) -> tuple[Candidate, ...]:
    """Around one device, the nearest next each time."""
    chosen = [seed]
    rest = [it for it in pool if it is not seed]
    while len(chosen) < need:

        def reach(device: Candidate) -> tuple[int, int, int, int]:
            distances = [distance(device, other) for other in chosen]
            return (max(distances), sum(distances), *_alone(device))

        nearest = min(rest, key=reach)
        rest.remove(nearest)
        chosen.append(nearest)
    return tuple(chosen)


def distance(one: Candidate, other: Candidate) -> int:
    """By the link that either knows of, else by NUMA node; what nobody tells is far."""
    link = one.links.get(other.id) or other.links.get(one.id)
    if link is None:
        near = one.numa_node is not None and one.numa_node == other.numa_node
        link = "node" if near else "system"
    return _FAR[link]
