"""``enginectl`` in this process, against a served fake supervisor."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.cli import main
from tests.rpc.fake import Served, serving


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def run(served: Served, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Ran:
        code = main(["--socket", served.path, *words])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return run
