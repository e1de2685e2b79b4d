"""A daemon for each test, and nothing left of it afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.engined import Engined


@pytest.fixture
def engined(tmp_path: Path) -> Iterator[Engined]:
    daemon = Engined(tmp_path)
    yield daemon
    daemon.close()
