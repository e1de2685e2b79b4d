"""A fresh supervisor for each test, and the check that a test leaks nothing."""

import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lifecycle.house import Home, opened


def descriptors() -> dict[int, str]:
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
    return found


@pytest.fixture(autouse=True)
def no_descriptor_leaks() -> Iterator[None]:
    """As many descriptors after a test as before it (PRT-3)."""
    before = descriptors()
    yield
    after = descriptors()
    if len(after) > len(before):
        gc.collect()
        after = descriptors()
    assert len(after) <= len(before), {fd: after[fd] for fd in after.keys() - before.keys()}


@pytest.fixture
async def home(tmp_path: Path, no_descriptor_leaks: None) -> AsyncIterator[Home]:
    """A supervisor that must have nothing left at the end of the test."""
    async with opened(tmp_path) as home:
        yield home
