"""Parts that several tests of devices share."""

from collections.abc import Iterator

import pytest

from tests.devices.probing import Ask
from tests.parts.fake_nvml import FakeNvml


@pytest.fixture
def ask(nvml: FakeNvml) -> Iterator[Ask]:
    """The real probe process, over the real binding, over the fake library."""
    asking = Ask(nvml.env)
    yield asking
    asking.close()
