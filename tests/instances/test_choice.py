"""The stated order, case by case, and that a big host is answered in bounded time."""

import time
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contracts.device import DeviceLink
from supervisor.instances.choice import MOST_SETS, Candidate, choose, distance

GIB = 1 << 30


def cards(*free: float | None, **members: Sequence[Any]) -> list[Candidate]:
    """Named by their index; ``members`` give one value a card."""
    return [
        Candidate(
            id=str(index),
            index=index,
            free_bytes=None if gib is None else int(gib * GIB),
            **{name: values[index] for name, values in members.items()},
        )
        for index, gib in enumerate(free)
    ]


def linked(count: int, *pairs: tuple[int, int, DeviceLink]) -> list[dict[str, DeviceLink]]:
    """The links of each card; the first of a pair is the one that tells."""
    links: list[dict[str, DeviceLink]] = [{} for _ in range(count)]
    for one, other, link in pairs:
        links[one][str(other)] = link
    return links


BRIDGED = linked(4, (0, 1, "bridge"), (0, 2, "nvlink"), (1, 3, "nvlink"), (2, 3, "bridge"))

TABLE: list[tuple[str, list[Candidate], int, str]] = [
    ("all alike: the lowest index", cards(24, 24, 24), 1, "0"),
    ("all alike: the lowest indices", cards(24, 24, 24), 2, "0 1"),
    ("the most free memory", cards(8, 40, 24), 1, "1"),
    ("the fullest of a pair decides", cards(80, 24, 40, 40), 2, "0 2"),
    ("memory before closeness", cards(24, 40, 40, links=linked(3, (0, 1, "nvlink"))), 2, "1 2"),
    ("a driver's own share decides nothing", cards(23.8, 24, 24.2), 1, "0"),
    ("what tells no memory is last", cards(None, 1), 1, "1"),
    ("nobody tells its memory", cards(None, None), 1, "0"),
    ("NVLink before a lower index", cards(24, 24, 24, 24, links=BRIDGED), 2, "0 2"),
    ("a link told by either end", cards(9, 9, 9, links=linked(3, (2, 1, "nvlink"))), 2, "1 2"),
    (
        "no pair far apart, rather than one pair near",
        cards(9, 9, 9, 9, links=linked(
            4, (0, 1, "nvlink"), (0, 2, "system"), (1, 2, "system"),
            (1, 3, "bridge"), (2, 3, "bridge"), (0, 3, "system"),
        )),
        2,
        "0 1",
    ),
    (
        "switches before a bridge before a node",
        cards(9, 9, 9, links=linked(3, (0, 1, "node"), (0, 2, "switch"), (1, 2, "bridge"))),
        2,
        "0 2",
    ),
    ("one NUMA node", cards(9, 9, 9, 9, numa_node=(0, 1, 0, 1)), 2, "0 2"),
    ("a lone one of another node is left out", cards(9, 9, 9, numa_node=(0, 1, 1)), 2, "1 2"),
    ("closeness before holders", cards(9, 9, 9, holders=(0, 0, 3),
                                      links=linked(3, (0, 2, "nvlink"))), 2, "0 2"),
    ("the fewest holders", cards(9, 9, 9, holders=(2, 1, 1)), 1, "1"),
    ("all of them", cards(1, 2, 3), 3, "0 1 2"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("candidates", "need", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_the_order(candidates: list[Candidate], need: int, expected: str) -> None:
    assert choose(candidates, need) == tuple(expected.split())
    assert choose(candidates[::-1], need) == tuple(expected.split())


def test_sixteen_cards_on_two_switches_are_not_searched_for_long() -> None:
    """12 870 sets of eight are too many to compare between two events of the loop."""
    near = [(a, b, "nvlink") for a, b in combinations(range(16), 2) if a % 2 == b % 2]
    sixteen = cards(*[80] * 16, links=linked(16, *near))  # type: ignore[arg-type]
    begun = time.perf_counter()
    assert choose(sixteen, 8) == tuple(str(index) for index in range(0, 16, 2))
    assert time.perf_counter() - begun < 0.5


LINKS = st.none() | st.sampled_from(["nvlink", "board", "switch", "bridge", "node", "system"])


@given(st.data(), st.integers(1, 7))
def test_no_other_set_is_better(data: st.DataObject, count: int) -> None:
    """Against a plain search over all sets, by the two criteria that come first."""
    pairs = [
        (a, b, link)
        for a, b in combinations(range(count), 2)
        if (link := data.draw(LINKS)) is not None
    ]
    free = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    all_cards = cards(*free, links=linked(count, *pairs))  # type: ignore[arg-type]
    need = data.draw(st.integers(1, count))
    chosen = choose(all_cards, need)
    assert len(set(chosen)) == need

    def worth(group: Sequence[Candidate]) -> tuple[int, int]:
        apart = max((distance(a, b) for a, b in combinations(group, 2)), default=0)
        return -min(it.steps for it in group), apart

    mine = worth([it for it in all_cards if it.id in chosen])
    assert mine == min(worth(group) for group in combinations(all_cards, need))
    assert MOST_SETS > 35, "every set of these was compared"
