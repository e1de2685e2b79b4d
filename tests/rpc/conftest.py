"""A served fake supervisor, and a watch over everything that would block its loop."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from blockbuster import blockbuster_ctx

from tests.rpc.fake import Served, serving
from tests.rpc.wire import Wire, connected


@pytest.fixture(autouse=True)
def _plain_logging() -> Iterator[None]:
    """What is logged goes to the standard logger, where ``caplog`` sees it."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    yield
    structlog.reset_defaults()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with blockbuster_ctx(), serving(tmp_path) as running:
        yield running


@pytest.fixture
def wire(served: Served) -> Iterator[Wire]:
    with connected(served.path) as made:
        yield made
