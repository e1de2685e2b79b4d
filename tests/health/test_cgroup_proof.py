"""Proof by the cgroup that a listener was opened in: real engines, real cgroups, squatters."""

import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.engine import HealthCheck, LaunchPlan, StopStyle
from supervisor.contracts.instance import Ownership
from supervisor.health.address import Addresses
from supervisor.health.dial import Connection, dial
from supervisor.health.outcome import Miss, NotReady, Ready
from supervisor.health.probe import Probe
from supervisor.health.proof import Owner, prove
from supervisor.health.sockdiag import server_side
from supervisor.launchers.base import Running, SpawnTicket
from supervisor.launchers.process import Cgroups, ProcessLauncher
from supervisor.launchers.process.procfs import NONCE_VARIABLE, read_stat
from tests.health.parts import OK, Server, check, child_server, free_port, silent
from tests.parts.stub import stub_binary

pytestmark = pytest.mark.anyio

ROUNDS = 100
SOON_S = 10.0


@asynccontextmanager
async def engine(
    folder: Path, root: Path | None, port: int, nonce: str = "a" * 32, **knobs: str | float
) -> AsyncIterator[Running]:
    """A stub engine that listens on the port, in a cgroup below the root or in none."""
    health = HealthCheck(path="/health", ready_deadline_ms=1000, interval_ms=100)
    argv = (stub_binary(folder, f"engine-{nonce[0]}", **knobs), "--port", str(port))
    plan = LaunchPlan(
        kind="process", argv=argv, env={}, ports=(), mounts=(), devices=(), health=health
    )
    env = {NONCE_VARIABLE: nonce, "PATH": "/usr/bin:/bin"}
    log = folder / f"{nonce[0]}.log"
    launcher = ProcessLauncher(cgroups=Cgroups(root))
    gated = await launcher.prepare(
        plan, SpawnTicket(name="one", nonce=nonce, log_path=str(log), env=env)
    )
    running = await gated.open()
    assert (gated.cgroup is None) == (root is None)
    try:
        with anyio.fail_after(SOON_S):
            while "listening" not in log.read_text():  # noqa: ASYNC110 - it is another process
                await anyio.sleep(0.01)
        yield running
    finally:
        await running.stop(StopStyle(), 0)
        running.close()


class ByCgroupAlone:
    """What the cgroup says, and the horror of ever being asked about a socket's holder."""

    def __init__(self, running: Running) -> None:
        self.running = running

    async def owns_socket(self, inode: int) -> Ownership:
        raise AssertionError("the cgroup was to decide")

    async def owns_cgroup(self, inode: int) -> Ownership:
        return await self.running.owns_cgroup(inode)

    async def publishes(self, port: int, *, again: bool = False) -> None:
        return None


def probe_of(port: int, owner: Owner) -> Probe:
    return Probe(Addresses("127.0.0.1"), port, check(), owner)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    connection = await dial(ip_address("127.0.0.1"), port)
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["plain", "cgroup"])
async def test_a_squatter_beside_an_engine_that_loads_is_never_ready(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    """On one port by ``SO_REUSEPORT``; the control shares a port with its squatter, too."""
    root = request.getfixturevalue("cgroup_root") if kind == "cgroup" else None
    port, other = free_port(), 0
    loads = engine(tmp_path, root, port, reuse_port=1, health="503")
    async with loads as loading:
        other = free_port()
        async with engine(tmp_path, root, other, "b" * 32, reuse_port=1) as well:
            with (
                child_server(OK, port=port, reuse_port=True),
                child_server(OK, port=other, reuse_port=True),
            ):
                kinds: dict[str, int] = {}
                async with probe_of(port, loading) as probe, probe_of(other, well) as control:
                    for _ in range(ROUNDS):
                        outcome = await probe.readiness()
                        assert isinstance(outcome, NotReady)
                        kinds[outcome.kind] = kinds.get(outcome.kind, 0) + 1
                        # The kernel picks one of the two listeners for each connection.
                        with anyio.fail_after(SOON_S):
                            while not isinstance(told := await control.readiness(), Ready):
                                assert told.kind == "foreign"
    assert set(kinds) == {"foreign", "status"}


async def test_the_first_look_decides_before_any_accept(tmp_path: Path, cgroup_root: Path) -> None:
    port = free_port()
    async with engine(tmp_path, cgroup_root, port) as running:
        (pid,) = [member.pid for member in await running.members()]
        os.kill(pid, signal.SIGSTOP)
        with anyio.fail_after(SOON_S):
            while (stat := read_stat(pid)) and stat.state != "T":  # noqa: ASYNC110 - as above
                await anyio.sleep(0.001)
        async with connected(port) as connection:
            with anyio.fail_after(0.5):
                await prove(connection, ByCgroupAlone(running), "GET")
            side = server_side(connection)
            assert side
            assert side.inode == 0
        os.kill(pid, signal.SIGCONT)
        async with probe_of(port, ByCgroupAlone(running)) as probe:
            for _ in range(10):
                assert isinstance(await probe.readiness(), Ready)


async def test_a_squatter_that_does_not_accept_is_told_by_its_cgroup(
    tmp_path: Path, cgroup_root: Path
) -> None:
    async with engine(tmp_path, cgroup_root, free_port()) as running:
        with Server(silent, accepts=0) as squatter:
            async with connected(squatter.port) as connection:
                began = time.monotonic()
                with pytest.raises(Miss) as caught:
                    await prove(connection, running, "GET")
                assert caught.value.kind == "foreign"
                assert time.monotonic() - began < 1.0
