"""Whether a path lies below one of some directories, and the path that then can be relied on.

A link is followed once, here, and what it led to is what is launched: who changes the link later
changes nothing. Below a root nothing is guarded against those who may write there. All of it
blocks.
"""

import os
from collections.abc import Iterator, Sequence

from supervisor.models.split import split_of

LONGEST_CHAIN = 40
"""Links in a row, as the kernel allows."""
MOST_FILES = 4096
"""In a model's folder; a model has fewer."""


class Outside(Exception):
    """The path, or something that it leads to, lies below none of the roots, or nobody can tell."""

    def __init__(self, path: str, why: str = "lies, links followed, below none of them") -> None:
        super().__init__(f"{path} {why}")


def inside(path: str, roots: Sequence[str]) -> str:
    """``path`` with no link left that somebody outside of the roots could change.

    The last part may be a link that lies below a root itself, for the parts of a model find each
    other by their names, which in a download cache are links. Raises ``Outside``, for everything
    beyond the roots alike: whether it is there is not told.
    """
    real_roots = [os.path.realpath(root) for root in roots]
    found = _named_below(path, real_roots)
    for one in _everything(found):
        if not _is_below(os.path.realpath(one), real_roots):
            raise Outside(found if one == found else one)
    return found


def _named_below(path: str, roots: Sequence[str]) -> str:
    """The first place on the way through ``path``'s links that lies below a root."""
    at = path
    for _ in range(LONGEST_CHAIN):
        folder, name = os.path.split(at.rstrip("/") or "/")
        if name in ("", ".", ".."):
            folder, name = os.path.split(os.path.realpath(at))
        place = os.path.join(os.path.realpath(folder), name)
        if _is_below(place, roots):
            return place
        try:
            at = os.path.join(os.path.dirname(place), os.readlink(place))
        except OSError:
            break
    raise Outside(path)


def _everything(path: str) -> Iterator[str]:
    """All that is read with a model: itself, its other parts, and what its folder holds."""
    yield path
    if split := split_of(path):
        yield from split.paths
    seen: set[str] = set()
    folders, left = [os.path.realpath(path)], MOST_FILES
    while folders:
        folder = folders.pop()
        if folder in seen or not os.path.isdir(folder):
            continue
        seen.add(folder)
        try:
            names = os.listdir(folder)
        except OSError as error:
            raise Outside(folder, f"cannot be looked at: {error.strerror}") from None
        left -= len(names)
        if left < 0:
            raise Outside(path, f"holds more than the {MOST_FILES} files that are looked at")
        for name in names:
            inner = os.path.join(folder, name)
            yield inner
            folders.append(os.path.realpath(inner))


def _is_below(real: str, roots: Sequence[str]) -> bool:
    return any(os.path.commonpath([real, root]) == root for root in roots)
