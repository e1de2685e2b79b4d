"""A place to launch real processes from, which proves at the end that nothing of them is left."""

# Short looks at /proc and at children of the test, which block nothing for long.
# ruff: noqa: ASYNC110, ASYNC240

import json
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import UNSET

from supervisor.contracts.engine import HealthCheck, LaunchPlan, StopStyle
from supervisor.contracts.instance import ProcessHandle
from supervisor.launchers.base import Gated, Running, SpawnTicket
from supervisor.launchers.process import Cgroups, ProcessLauncher
from supervisor.launchers.process.procfs import NONCE_VARIABLE, processes, read_nonce
from tests.parts.stub import stub_binary

SOON_S = 10.0
"""Far from what anything takes: it only keeps a broken test from hanging."""
AT_ONCE = StopStyle(grace_ms=0)


@dataclass
class Ground:
    """Launches stubs in a folder of its own, under one nonce."""

    folder: Path
    launcher: ProcessLauncher
    nonce: str = field(default_factory=lambda: f"test{uuid.uuid4().hex}")
    cgroups: Cgroups | None = None
    started: list[Running] = field(default_factory=list)
    places: dict[int, str | None] = field(default_factory=dict)
    """The cgroup of each that was started, by pid: what a record would hold."""

    @property
    def log(self) -> str:
        return (self.folder / "engine.log").read_text(errors="replace")

    @property
    def env(self) -> dict[str, str]:
        return {NONCE_VARIABLE: self.nonce, "PATH": "/usr/bin:/bin"}

    def plan(self, *argv: str, workdir: str | None = None) -> LaunchPlan:
        return LaunchPlan(
            kind="process",
            argv=argv,
            env={},
            ports=(),
            mounts=(),
            devices=(),
            health=HealthCheck(path="/health", ready_deadline_ms=1000, interval_ms=100),
            workdir=workdir or UNSET,
        )

    def ticket(self, **changed: Any) -> SpawnTicket:
        given: dict[str, Any] = {
            "name": "one",
            "nonce": self.nonce,
            "log_path": str(self.folder / "engine.log"),
            "env": self.env,
        }
        return SpawnTicket(**given | changed)

    async def prepare(self, *argv: str, workdir: str | None = None, **changed: Any) -> Gated:
        return await self.launcher.prepare(
            self.plan(*argv, workdir=workdir), self.ticket(**changed)
        )

    async def start(self, *argv: str, workdir: str | None = None, **changed: Any) -> Running:
        gated = await self.prepare(*argv, workdir=workdir, **changed)
        running = await gated.open()
        self.started.append(running)
        self.places[self.pid(running)] = gated.cgroup
        return running

    async def attach(self, running: Running, **options: Any) -> Running:
        """What a new daemon would have of it, from a record."""
        launcher = ProcessLauncher(cgroups=self.cgroups, **options)
        again = await launcher.attach(running.ref, self.nonce, self.places[self.pid(running)])
        self.started.append(again)
        return again

    async def stub(self, **knobs: str | float) -> Running:
        """A stub engine that serves nothing, started up to its signal handlers and children."""
        up = self.folder / f"up-{uuid.uuid4().hex}"
        given: dict[str, str | float] = {"health": "never", "up": str(up)}
        running = await self.start(stub_binary(self.folder, "llama-server", **given | knobs))
        await appears(up)
        return running

    def handle(self, running: Running) -> ProcessHandle:
        assert isinstance(running.ref, ProcessHandle)
        return running.ref

    def pid(self, running: Running) -> int:
        return self.handle(running).pid


async def listens(ground: Ground) -> None:
    with anyio.fail_after(SOON_S):
        while "listening" not in ground.log:
            await anyio.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def appears(path: Path) -> str:
    with anyio.fail_after(SOON_S):
        while not path.exists():
            await anyio.sleep(0.005)
    return path.read_text()


async def facts(path: Path) -> dict[str, Any]:
    """What a stub dumped about itself."""
    loaded: dict[str, Any] = json.loads(await appears(path))
    return loaded


async def gone(pid: int) -> None:
    with anyio.fail_after(SOON_S):
        while alive(pid):
            await anyio.sleep(0.005)


def alive(pid: int) -> bool:
    return any(stat.pid == pid and stat.alive for stat in processes())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def bearers(nonce: str) -> Iterable[int]:
    """Living processes that carry a nonce."""
    return (stat.pid for stat in processes() if stat.alive and read_nonce(stat.pid) == nonce)


@pytest.fixture(params=["plain", "cgroup"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    """Twice for each test: every promise holds with cgroups and without."""
    cgroups = None
    if request.param == "cgroup":
        cgroups = Cgroups(request.getfixturevalue("cgroup_root"))
        assert await cgroups.probe()
    before = descriptors()
    launcher = ProcessLauncher(kill_patience_s=SOON_S, cgroups=cgroups)
    ground = Ground(tmp_path, launcher, cgroups=cgroups)
    yield ground
    for running in ground.started:
        with suppress(anyio.ClosedResourceError):
            await running.stop(AT_ONCE, 0)
        running.close()
    strays = list(bearers(ground.nonce))
    for pid in strays:
        os.kill(pid, signal.SIGKILL)
    assert not strays
    assert descriptors() == before


@pytest.fixture
async def caged(tmp_path: Path, cgroup_root: Path) -> AsyncIterator[Ground]:
    """With cgroups only, for what only they do. A test ends what it started."""
    before = descriptors()
    cgroups = Cgroups(cgroup_root)
    launcher = ProcessLauncher(kill_patience_s=SOON_S, cgroups=cgroups)
    ground = Ground(tmp_path, launcher, cgroups=cgroups)
    yield ground
    for running in ground.started:
        running.close()
    assert descriptors() == before
