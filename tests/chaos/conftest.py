"""One nursery of daemons for all tests that kill some."""

from collections.abc import Iterator

import pytest

from tests.chaos.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery
