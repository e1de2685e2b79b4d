"""Devices that somebody else computes on: seen, shown, and treated as the config says.

The driver is played by a probe that names whatever processes it is told to; the processes are real.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from supervisor.contracts.config import Config, DevicesConfig, ForeignPolicy
from supervisor.contracts.device import DeviceLease, DeviceProcess
from supervisor.contracts.failure import NoCapacity
from supervisor.contracts.rpc import PinParams
from supervisor.devices.cpu import CpuProbe
from supervisor.devices.probe import ProbeAnswer
from supervisor.devices.static import StaticProbe
from supervisor.lifecycle.instance import Instance
from tests.lifecycle.house import CARDS, POOL, SOON, A, B, Home, opened, pid_of

pytestmark = pytest.mark.anyio


class Driver:
    """The two cards, and the processes that are on them."""

    def __init__(self) -> None:
        self.on: dict[str, list[DeviceProcess]] = {A: [], B: []}

    def sample(self) -> ProbeAnswer:
        answer = StaticProbe(CARDS).sample()
        return ProbeAnswer(
            accelerators=tuple(
                replace(card, processes=tuple(self.on[card.id])) for card in answer.accelerators
            )
        )


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that is none of ours."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def ended() -> int:
    """The pid of a process that is gone."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@asynccontextmanager
async def host(
    folder: Path, driver: Driver, policy: ForeignPolicy = "avoid", *, clean: bool = True
) -> AsyncIterator[Home]:
    devices = DevicesConfig(static=CARDS, foreign=policy)
    config = Config(ports=POOL, devices=devices)
    probes = (driver, CpuProbe("a processor"))
    async with opened(folder, config=config, probes=probes, clean=clean) as home:
        yield home


async def lease(home: Home, device: str = A) -> DeviceLease:
    [found] = [it for it in (await home.supervisor.leases()).leases if it.device == device]
    return found


async def stands(home: Home, standing: str, device: str = A) -> DeviceLease:
    """Wait until a device stands so: a snapshot is up to a second old."""
    with anyio.fail_after(SOON):
        while (found := await lease(home, device)).standing != standing:  # noqa: ASYNC110
            await anyio.sleep(0.05)
    return found


async def test_a_stranger_is_shown_and_avoided(tmp_path: Path, stranger: int) -> None:
    driver = Driver()
    driver.on[A] = [DeviceProcess(pid=stranger, memory_bytes=5)]
    async with host(tmp_path, driver) as home:
        found = await stands(home, "foreign")
        [who] = found.foreign
        assert (who.pid, who.memory_bytes) == (stranger, 5)
        assert who.name
        assert who.name.startswith("python")
        assert (await lease(home, B)).standing == "free"
        view = await home.launch("x", device_count=1)
        assert view.record.devices == (B,)
        failure = await home.refused("y", device_count=1)
        assert isinstance(failure, NoCapacity)
        assert (failure.need, failure.free) == (1, 0)
        assert failure.detail
        assert f"{A} is used by {who.name} (pid {stranger}), none of ours" in failure.detail
        assert f"{B} is held by x (exclusive)" in failure.detail
        named = await home.launch("z", devices=(A,))
        assert named.record.devices == (A,)
        assert (await lease(home)).standing == "held"
        await home.stop("z")
        await home.stop("x")


@pytest.mark.parametrize("policy", ["refuse", "allow"])
async def test_the_config_says_what_a_stranger_means(
    tmp_path: Path, stranger: int, policy: ForeignPolicy
) -> None:
    driver = Driver()
    driver.on[A] = [DeviceProcess(pid=stranger)]
    async with host(tmp_path, driver, policy) as home:
        if policy == "refuse":
            assert isinstance(await home.refused(devices=(A,)), NoCapacity)
            assert (await home.launch(device_count=1)).record.devices == (B,)
            await home.stop()
        else:
            assert (await home.launch(device_count=1)).record.devices == (A,)
            await home.stop()
        held = await home.supervisor.pin(
            PinParams(name="p", holder="whoever that is", engine="vllm", devices=(A,))
        )
        assert held.record.devices == (A,), "a pin says whose it is; that is what it is for"
        await home.supervisor.release("p")


async def test_one_that_has_ended_or_only_draws_is_no_stranger(
    tmp_path: Path, stranger: int, ended: int
) -> None:
    driver = Driver()
    driver.on[A] = [
        DeviceProcess(pid=ended, name="python"),
        DeviceProcess(pid=stranger, graphics_only=True),
    ]
    async with host(tmp_path, driver) as home:
        assert (await lease(home)).standing == "free"
        assert (await home.launch(device_count=1)).record.devices == (A,)
        await home.stop()


async def test_the_whole_tree_of_an_engine_is_ours(tmp_path: Path) -> None:
    """Its workers too: one whose title is written over its environment is found by its tree."""
    driver = Driver()
    pids = tmp_path / "pids"
    async with host(tmp_path, driver) as home:
        binary = home.stub(children="session+erased,plain", **{"children-file": str(pids)})
        view = await home.launch(devices=(A,), binary=binary)
        workers = [int(line) for line in pids.read_text().split()]
        everybody = [pid_of(view), *workers]
        driver.on[B] = [DeviceProcess(pid=os.getpid())]
        await stands(home, "foreign", B)  # the next snapshot is there
        driver.on[A] = [DeviceProcess(pid=pid) for pid in everybody]
        driver.on[B] = []
        await stands(home, "free", B)
        assert (await lease(home)).foreign == ()
        await home.stop()
        # The snapshot still names them; they are gone, and the card is free at once.
        assert (await home.launch(device_count=2)).state == "ready"
        await home.stop()


async def test_where_a_tree_cannot_be_told_nobody_is_called_a_stranger(
    tmp_path: Path, stranger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def untold(self: Instance) -> tuple[()]:
        raise anyio.ClosedResourceError

    driver = Driver()
    async with host(tmp_path, driver) as home:
        await home.launch(devices=(A,))
        monkeypatch.setattr(Instance, "tree", untold)
        driver.on[A] = [DeviceProcess(pid=stranger)]
        driver.on[B] = [DeviceProcess(pid=stranger)]
        await stands(home, "foreign", B)
        assert (await lease(home)).foreign == ()
        await home.stop()
