"""Parts that several tests of devices share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.probing import Ask
from tests.parts.fake_nvml import FakeNvml, build


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(nvml_library, tmp_path)


@pytest.fixture
def ask(nvml: FakeNvml) -> Iterator[Ask]:
    """The real probe process, over the real binding, over the fake library."""
    asking = Ask(nvml.env)
    yield asking
    asking.close()
