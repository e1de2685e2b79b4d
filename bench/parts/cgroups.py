"""The cgroups of daemons that were killed: a daemon that leaves removes its own, a dead one cannot.

Such a directory bears the id of a state directory, so those of this run can be told for certain.
"""

import time
from pathlib import Path

from supervisor.daemon.cgroup import own_cgroup_root

PATIENCE_S = 2.0
"""A killed process counts as a member until the kernel is done with it."""


def remove_cgroups(folder: Path) -> None:
    """Of every state directory below ``folder``; their engines are dead, or just about to be.

    What a unit delegated is not named after one, and stays.
    """
    for known in folder.glob("**/supervisor-id"):
        name = known.read_text().strip()
        root = own_cgroup_root(name)
        ends = time.monotonic() + PATIENCE_S
        while root and root.name.endswith(name) and root.is_dir() and time.monotonic() < ends:
            _remove(root)


def _remove(root: Path) -> None:
    for path in sorted(root.glob("**/"), key=lambda path: len(path.parts), reverse=True):
        try:
            path.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            time.sleep(0.02)
