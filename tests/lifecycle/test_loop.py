"""The event loop is never blocked: `blockbuster` raises where something would."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from supervisor.contracts.event import Exited, Swept
from tests.lifecycle.house import A, B, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
def no_blocking() -> Iterator[BlockBuster]:
    with blockbuster_ctx(scanned_modules=["supervisor"]) as buster:
        yield buster


async def test_a_whole_life_never_blocks_the_loop(no_blocking: BlockBuster, tmp_path: Path) -> None:
    """Launches that succeed, fail, are cancelled, exit, are adopted and stopped."""
    async with opened(tmp_path, clean=False) as home:
        await home.launch("kept", devices=(B,))
        await home.refused(binary="/nowhere")
        await home.refused(binary=home.stub(load=60, exit_after=0.1))
        await home.refused(binary=home.stub(health="503"), ready_deadline_ms=200)
        await home.launch("y", binary=home.stub(load=60), wait=False)
        await home.cancel("y")
        await home.launch(binary=home.stub(exit_after=0.5, children="session"), devices=(A,))
        await home.seen(Exited)
        await home.seen(Swept)
        await home.supervisor.plan(home.params("z"))
        await home.supervisor.engines()
        await home.supervisor.snapshot()
        home.supervisor.list(ended=True)
    async with opened(tmp_path) as home:
        with anyio.fail_after(5):
            while home.supervisor.get("kept").state != "ready":
                await anyio.sleep(0.01)
        await home.stop("kept")
