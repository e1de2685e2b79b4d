"""A cgroup that a record names is believed only where it can be this very start's own."""

from pathlib import Path

import pytest

from supervisor.launchers.process.cgroup import Cgroup
from supervisor.launchers.process.cgroups import Cgroups

ROOT = Path("/sys/fs/cgroup/unified/engine-supervisor-0011223344556677")
NONCE = "0123456789abcdef0123456789abcdef"
OWN = f"{ROOT}/x-0123456789ab-77"


def test_its_own_is_taken() -> None:
    assert Cgroups(ROOT).recorded(OWN, NONCE, 77) == Cgroup(Path(OWN))


@pytest.mark.parametrize(
    "path",
    [
        None,
        str(ROOT),
        str(ROOT.parent),
        f"{ROOT}/x-0123456789ab-78",
        f"{ROOT}/x-ba9876543210-77",
        f"{ROOT.parent}/foreign/x-0123456789ab-77",
    ],
)
def test_any_other_is_not(path: str | None) -> None:
    assert Cgroups(ROOT).recorded(path, NONCE, 77) is None
