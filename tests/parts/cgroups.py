"""A real place for cgroups, which proves at the end that nothing of them is left."""

import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.launchers.process.cgroup import Cgroup

ENDS_S = 10.0


@contextmanager
def cgroup_place() -> Iterator[Path]:
    """What a daemon would have for its engines' cgroups; skips where it would have nothing."""
    # Here, for it brings the whole daemon with it, which most tests can do without.
    from supervisor.daemon.cgroup import own_cgroup_root

    root = own_cgroup_root(f"test{uuid.uuid4().hex[:12]}")
    if root is None:
        pytest.skip("no cgroup v2 is ours to make: that takes root, outside of systemd's tree")
    try:
        yield root
        assert not root.exists() or [it.name for it in root.iterdir() if it.is_dir()] == []
    finally:
        end(root)


def sweep(folder: Path) -> list[Path]:
    """What daemons left of their cgroups, whose state directories are here or below; it is ended.

    A daemon that stops leaves nothing. One that is killed has no chance to clean up.
    """
    left = [root for root in _roots(folder) if root.exists()]
    for root in left:
        for below, _, _ in os.walk(root, topdown=False):
            if Path(below).exists():
                end(Path(below))
    return left


def _roots(folder: Path) -> Iterator[Path]:
    from supervisor.daemon.cgroup import _own

    own = _own()
    for place, _, files in os.walk(folder):
        if own is not None and "supervisor-id" in files:
            named = (Path(place) / "supervisor-id").read_bytes().strip()
            if re.fullmatch(rb"[0-9a-f]+", named):
                yield own / f"engine-supervisor-{named.decode()}"


def end(folder: Path) -> None:
    """Whoever lives in it, and the directory."""
    cgroup = Cgroup(folder)
    cgroup.kill()
    deadline = time.monotonic() + ENDS_S
    while cgroup.populated() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert cgroup.remove()
