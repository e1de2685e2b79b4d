"""Fixtures for every test. Async tests are marked ``anyio`` and run on asyncio, as the daemon."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
