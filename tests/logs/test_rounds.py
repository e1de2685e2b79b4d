"""Many files by one thread, some of which hang."""

import threading
import time

import anyio
import pytest

from supervisor.logs import rounds
from supervisor.logs.rounds import Rounds

pytestmark = pytest.mark.anyio


class File:
    def __init__(self, number: int) -> None:
        self.number = number
        self.hangs = threading.Event()
        self.hangs.set()

    def work(self) -> int:
        assert self.hangs.wait(20)
        return self.number


async def numbers(of: Rounds, files: list[File]) -> list[int]:
    return [number for _, number in await of.go(files, File.work)]


async def test_one_that_hangs_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "HANG_S", 0.1)
    of, files = Rounds(), [File(number) for number in range(5)]
    for number in (1, 3):
        files[number].hangs.clear()
    began = time.monotonic()
    assert await numbers(of, files) == [0, 2, 4]
    assert time.monotonic() - began < 5
    began = time.monotonic()
    assert await numbers(of, files) == [0, 2, 4]
    assert time.monotonic() - began < 0.1, "it is known by now who hangs"
    for file in files:
        file.hangs.set()
    with anyio.fail_after(5):
        # Nothing tells when a thread has come back.
        while await numbers(of, files) != [0, 1, 2, 3, 4]:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_what_goes_wrong_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(file: File) -> int:
        raise ValueError(file.number)

    with pytest.raises(ValueError, match="7"):
        await Rounds().go([File(7)], work)


async def test_nobody_has_nothing() -> None:
    assert await Rounds().go(list[File](), File.work) == []
