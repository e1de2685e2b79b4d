"""Links in a model that lead out of what a container sees of it: what they lead to goes in as well.

A model's folder is often links to files elsewhere (another disk, a store of blobs). Mounted alone
its links would dangle inside, so each one's file is mounted where the link will look for it. Files
alone: a link to a folder, which may be any of the host's, opens nothing.
"""

import os
import posixpath
from collections.abc import Iterator

from supervisor.contracts.engine import Mount
from supervisor.models.split import split_of

MOST = 4096
"""Files that are looked at; a model has fewer."""
LONGEST_CHAIN = 40
"""Links in a row, as the kernel allows."""


def linked_mounts(model: str, mount: Mount) -> tuple[Mount, ...]:
    """What has to be mounted besides ``mount``, which holds ``model``. Reads folders: blocks."""
    found: dict[str, Mount] = {}
    for path in _files(model):
        for link in _chain(path):
            if extra := _beyond(link, mount):
                found[extra.to] = extra
    return tuple(found.values())


def _files(model: str) -> Iterator[str]:
    """The files of a model: its parts, or all that its folder holds."""
    if not os.path.isdir(model):
        split = split_of(model)
        yield from split.paths if split else (model,)
        return
    left = MOST
    for folder, _, files in os.walk(model):
        for name in files:
            yield os.path.join(folder, name)
            left -= 1
            if not left:
                return


def _chain(path: str) -> Iterator[str]:
    """The links that lead on from ``path``, itself the first."""
    for _ in range(LONGEST_CHAIN):
        try:
            target = os.readlink(path)
        except OSError:
            return
        yield path
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))


def _beyond(link: str, mount: Mount) -> Mount | None:
    root = mount.from_.rstrip("/") + "/"
    real = os.path.realpath(link)
    if not link.startswith(root) or not os.path.isfile(real):
        return None
    target = os.readlink(link)
    if not target.startswith("/"):
        inside = posixpath.join(mount.to, link.removeprefix(root))
        target = posixpath.normpath(posixpath.join(posixpath.dirname(inside), target))
        if target.startswith(mount.to.rstrip("/") + "/"):
            return None  # to its neighbour, which is mounted with it
    return Mount(from_=real, to=target, read_only=True)
