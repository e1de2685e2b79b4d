"""Sides of a comparison, measured in turns, so that a busy minute of the machine hits them all."""

from collections.abc import Callable, Mapping


def in_turns(
    sides: Mapping[str, Callable[[], float]], rounds: int, *, block: int = 1, warm_up: int = 1
) -> dict[str, list[float]]:
    """Call every side ``block`` times a round; who begins moves on by one from round to round.

    A block of more than one is for what a client does over and over: with a costly peer between
    any two calls, ours would meet cold caches that it never has in use.
    """
    names = list(sides)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warm_up + rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            taken = [sides[name]() for _ in range(block)]
            if turn >= warm_up:
                samples[name] += taken
    return samples
