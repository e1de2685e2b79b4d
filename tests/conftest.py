"""Fixtures for every test. Async tests are marked ``anyio`` and run on asyncio, as the daemon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts.cgroups import cgroup_place, sweep
from tests.parts.fake_nvml import FakeNvml, build
from tests.parts.leftovers import end_leftovers


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _no_cgroups_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of daemons of this run, that is: other runs are on their own."""
    yield
    left = sweep(tmp_path_factory.getbasetemp())
    assert left == [], "tests that killed a daemon did not clean up after it (they are gone now)"


@pytest.fixture(scope="session", autouse=True)
def _no_process_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An engine that outlives its test keeps a port, or a core, from one that comes later."""
    yield
    left = end_leftovers(tmp_path_factory.getbasetemp())
    assert left == [], "tests left these running (they are gone now)"


@pytest.fixture
def cgroup_root() -> Iterator[Path]:
    """Where cgroups can be made; skips where none can be. Has to be empty at the end."""
    with cgroup_place() as root:
        yield root


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    """A host of NVIDIA's that a test makes up, and changes as it goes."""
    return FakeNvml(nvml_library, tmp_path)
