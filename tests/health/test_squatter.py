"""Somebody else's server on the engine's port, in a process of its own, is never the engine."""

import os

import anyio
import pytest

from supervisor.health.outcome import NotReady, Ready
from tests.health.parts import OK, UNAVAILABLE, FdOwner, child_server, probe_of

pytestmark = pytest.mark.anyio

ROUNDS = 100


async def test_a_squatter_is_never_ready_beside_a_control_that_always_is() -> None:
    """HLT-6."""
    with child_server(OK) as squatter:
        ours, control = FdOwner(os.getpid()), FdOwner(squatter.pid)
        async with (
            probe_of(squatter.port, owner=ours) as probe,
            probe_of(squatter.port, owner=control) as other,
        ):
            for _ in range(ROUNDS):
                outcome = await probe.readiness()
                assert isinstance(outcome, NotReady)
                assert outcome.kind == "foreign"
                assert isinstance(await other.readiness(), Ready)


async def test_nor_where_it_shares_the_port_with_an_engine_that_still_loads() -> None:
    with (
        child_server(UNAVAILABLE, reuse_port=True) as engine,
        child_server(OK, port=engine.port, reuse_port=True) as squatter,
    ):
        seen = dict.fromkeys(("foreign", "status"), 0)
        ready = 0
        async with (
            probe_of(engine.port, owner=FdOwner(engine.pid)) as probe,
            probe_of(engine.port, owner=FdOwner(squatter.pid)) as other,
        ):
            for _ in range(ROUNDS):
                outcome = await probe.readiness()
                assert isinstance(outcome, NotReady)
                seen[outcome.kind] += 1
                # The kernel picks one of the two listeners for each connection.
                with anyio.fail_after(5):
                    while not isinstance(await other.readiness(), Ready):
                        pass
                ready += 1
        assert min(seen.values()) > 0
        assert ready == ROUNDS


async def test_kept_connections_are_proved_too() -> None:
    with child_server(OK) as squatter:
        async with probe_of(squatter.port, owner=FdOwner(os.getpid())) as probe:
            for _ in range(5):
                assert isinstance(await probe.health(), NotReady)
