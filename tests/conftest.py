"""Fixtures for every test. Async tests are marked ``anyio`` and run on asyncio, as the daemon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts.cgroups import cgroup_place


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def cgroup_root() -> Iterator[Path]:
    """Where cgroups can be made; skips where none can be. Has to be empty at the end."""
    with cgroup_place() as root:
        yield root
