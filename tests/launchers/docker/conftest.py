"""One Docker Engine for all tests here. Each test has to leave it as it found it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.engined import Engined
from tests.parts.dockerd import Dockerd, require_dockerd, started


@pytest.fixture(scope="session")
def _dockerd() -> Iterator[Dockerd]:
    require_dockerd()
    with started() as dockerd:
        yield dockerd


@pytest.fixture
def dockerd(_dockerd: Dockerd) -> Iterator[Dockerd]:
    if not _dockerd.answers():
        _dockerd.restart()
    before = _dockerd.left()
    yield _dockerd
    if not _dockerd.answers():
        _dockerd.restart()
    after = _dockerd.left()
    for container in set(after["containers"]) - set(before["containers"]):
        _dockerd.remove(container)  # it must not disturb the next test
    assert after == before


@pytest.fixture
def engined(tmp_path: Path, dockerd: Dockerd) -> Iterator[Engined]:
    """The daemon as a process of its own, with that Docker Engine."""
    daemon = Engined(tmp_path)
    with daemon.config.open("a") as config:
        config.write(f'[docker]\nsocket = "{dockerd.socket}"\n')
    yield daemon
    daemon.close()
