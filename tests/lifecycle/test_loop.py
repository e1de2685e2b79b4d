"""The event loop is never blocked: `blockbuster` raises where something would."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from supervisor.contracts.event import Exited, Swept, TaskCrashed
from tests.lifecycle.house import A, B, opened, until

pytestmark = pytest.mark.anyio


ALLOWED = {
    # By decision: `Popen` on the loop's thread, which waits for the exec of the stub (0.25 ms).
    "os.read": [("subprocess.py", "_execute_child")],
}


@contextmanager
def guarded() -> Iterator[None]:
    """For what our own code does on the loop; a test reads files as it likes."""
    with blockbuster_ctx(scanned_modules=["supervisor"]) as buster:
        for function, places in ALLOWED.items():
            for file, caller in places:
                buster.functions[function].can_block_in(file, caller)
        yield


async def test_a_whole_life_never_blocks_the_loop(tmp_path: Path) -> None:
    """Launches that succeed, fail, are cancelled, exit, are adopted and stopped."""
    async with opened(tmp_path, guard=guarded, clean=False) as home:
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
        assert home.of(TaskCrashed) == []
    async with opened(tmp_path, guard=guarded) as home:
        await until(lambda: home.supervisor.get("kept").state == "ready")
        await home.stop("kept")
        assert home.of(TaskCrashed) == []
