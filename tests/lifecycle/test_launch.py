"""The straight way: a launch, its events, its stop."""

import time

import pytest

from tests.lifecycle.house import A, Home, is_running

pytestmark = pytest.mark.anyio


async def test_a_launch_becomes_ready_and_a_stop_frees_everything(home: Home) -> None:
    began = time.monotonic()
    view = await home.launch("x", devices=(A,))
    print("launch", time.monotonic() - began)
    assert view.state == "ready"
    assert view.record.devices == (A,)
    assert await home.holders() == {A: ["x"]}
    ref = view.record.ref
    stopped = await home.stop("x")
    print("all", time.monotonic() - began)
    assert stopped.state == "exited"
    assert home.story() == ["reserved", "launching", "spawned", "ready", "stopping", "stopped"]
