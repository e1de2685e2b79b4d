"""Calls that may never come back cost a bounded number of threads, whoever gave up on them."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from supervisor.patience import AllHung, Overdue, Patience
from tests.instances.children import run_child

pytestmark = pytest.mark.anyio

SHORT_S = 0.05


class Fifo:
    """Opening it hangs in the kernel until somebody opens the other end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()
        os.mkfifo(path)

    def read(self) -> str:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        try:
            with self.path.open() as opened:
                return opened.read()
        finally:
            with self._lock:
                self.inside -= 1

    def answer(self) -> None:
        """Let everybody out who is inside."""
        deadline = time.monotonic() + 10
        while self.inside and time.monotonic() < deadline:
            try:
                os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:  # nobody reads just now
                time.sleep(0.001)
        assert not self.inside


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Fifo]:
    made = Fifo(tmp_path / "fifo")
    yield made
    made.answer()


async def test_what_comes_back_in_time_is_handed_back() -> None:
    patience = Patience("counting", 2)
    assert await patience.run(sum, (1, 2), within_s=5) == 3
    with pytest.raises(ZeroDivisionError):
        await patience.run(divmod, 1, 0, within_s=5)


async def test_hung_threads_are_bounded_and_the_bound_is_told(fifo: Fifo) -> None:
    """Nobody may start a third one, however many give up and come again."""
    patience = Patience("reading", 2)
    for _ in range(2):
        with pytest.raises(Overdue, match=r"reading took longer than 0\.05 s"):
            await patience.run(fifo.read, within_s=SHORT_S)
    before = time.monotonic()
    for _ in range(20):
        with pytest.raises(AllHung, match="all 2 threads for reading"):
            await patience.run(fifo.read, within_s=60)
    assert time.monotonic() - before < 5, "nobody waits for what is known to hang"
    assert (fifo.most, patience.hung) == (2, 2)
    fifo.answer()
    with anyio.fail_after(5):
        while patience.hung:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    assert await patience.run(sum, (1, 2), within_s=5) == 3


async def test_who_is_cancelled_gives_no_thread_back_before_it_is_free(fifo: Fifo) -> None:
    """What anyio's limiters do not hold: they count who waits, and not who works."""
    patience = Patience("reading", 2)
    for _ in range(10):
        with anyio.move_on_after(SHORT_S):
            await patience.run(fifo.read, within_s=60)
    assert fifo.most == 2
    with pytest.raises(AllHung):  # nobody is known to hang, and yet no thread came free
        await patience.run(sum, (1, 2), within_s=SHORT_S)


async def test_what_never_began_does_not_begin_later(fifo: Fifo) -> None:
    patience = Patience("reading", 1)
    begun: list[int] = []
    with anyio.move_on_after(SHORT_S):
        await patience.run(fifo.read, within_s=60)
    with anyio.move_on_after(SHORT_S):
        await patience.run(begun.append, 1, within_s=60)
    fifo.answer()
    await patience.run(begun.append, 2, within_s=5)
    assert begun == [2]


async def test_what_comes_too_late_is_given_back(fifo: Fifo) -> None:
    """Such as a descriptor, which would stay open with a lock on it."""
    patience, late = Patience("opening", 2), list[int]()

    def take() -> int:
        fifo.read()
        return 7

    with pytest.raises(Overdue):
        await patience.run(take, within_s=SHORT_S, late=late.append)
    with anyio.move_on_after(SHORT_S):
        await patience.run(take, within_s=60, late=late.append)
    assert late == []
    fifo.answer()
    with anyio.fail_after(5):
        while len(late) < 2:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    assert await patience.run(lambda: 8, within_s=5, late=late.append) == 8
    assert late == [7, 7]


async def test_a_fork_has_threads_of_its_own(fifo: Fifo) -> None:
    """The parent's are not there, and nobody waits for them."""
    patience = Patience("counting", 1)
    assert await patience.run(sum, (1, 2), within_s=5) == 3
    with pytest.raises(Overdue):
        await patience.run(fifo.read, within_s=SHORT_S)

    def forked() -> None:
        assert anyio.run(partial(patience.run, sum, (1, 2), within_s=5)) == 3

    await anyio.to_thread.run_sync(run_child, lambda: in_a_thread(forked))


def in_a_thread(work: Callable[[], None]) -> None:
    """Away from the loop that the fork believes to be running."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(work).result()
