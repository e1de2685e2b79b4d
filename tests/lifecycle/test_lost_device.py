"""A card that is gone when an instance is to be started again, and cards that moved up."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.config import Config, DevicesConfig, RestartConfig, StaticDevice
from supervisor.contracts.device import DeviceSnapshot
from supervisor.contracts.event import Exited, LaunchFailed, Ready, Restarting, TaskCrashed
from supervisor.contracts.failure import NoCapacity
from supervisor.devices.cpu import CpuProbe
from supervisor.devices.inventory import DevicesUnknown
from supervisor.devices.probe import ProbeAnswer
from supervisor.devices.static import StaticProbe
from supervisor.lifecycle.errors import LaunchRefused
from tests.lifecycle.house import POOL, A, B, is_running, opened, pid_of

pytestmark = pytest.mark.anyio

FIRST, SECOND = "intel:0000:03:00.0", "intel:0000:04:00.0"
QUICK = Config(
    ports=POOL,
    devices=DevicesConfig(),
    restart=RestartConfig(initial_ms=1_500, max_ms=1_500, jitter=0),
)
"""Pauses that outlive a snapshot, which is fresh for a second."""


class Slots:
    """What is plugged in."""

    def __init__(self, *devices: StaticDevice) -> None:
        self.devices = list(devices)

    def sample(self) -> ProbeAnswer:
        return StaticProbe(self.devices).sample()


def cards(*ids: str) -> Slots:
    return Slots(*(StaticDevice(id=it, accelerator="cuda", memory_bytes=1 << 34) for it in ids))


async def test_a_restart_without_its_device_is_refused_before_the_engine_is_stopped(
    tmp_path: Path,
) -> None:
    slots = cards(A, B)
    async with opened(tmp_path, probes=(slots, CpuProbe("a processor"))) as home:
        view = await home.launch(devices=(A,))
        del slots.devices[0]
        await home.house.inventory.snapshot(fresh=True)
        with anyio.fail_after(10), pytest.raises(LaunchRefused) as caught:
            await home.supervisor.restart("x", nonce=None, grace_ms=None)
        failure = caught.value.failure
        assert isinstance(failure, NoCapacity)
        assert (failure.need, failure.free) == (1, 0)
        assert A in str(failure.detail)
        [told] = home.of(LaunchFailed)
        assert told.failure == failure
        assert told.nonce not in ("", view.record.nonce)
        assert home.supervisor.get("x").record == view.record
        assert is_running(pid_of(view))
        assert home.of(TaskCrashed) == []
        await home.stop()


async def test_a_retry_waits_for_its_device_to_come_back(tmp_path: Path) -> None:
    slots = cards(A, B)
    async with opened(tmp_path, probes=(slots, CpuProbe("a processor")), config=QUICK) as home:
        view = await home.launch(devices=(A,), restart="on-failure")
        card = slots.devices.pop(0)
        os.kill(pid_of(view), signal.SIGKILL)
        await home.seen(Exited)
        failed = await home.seen(LaunchFailed)
        assert isinstance(failed.failure, NoCapacity)
        await home.seen(Restarting, times=2)
        assert await home.holders() == {A: ["x"]}
        slots.devices.insert(0, card)
        await home.seen(Ready, times=2)
        assert home.of(TaskCrashed) == []
        await home.stop()


async def test_a_retry_is_prepared_for_the_cards_of_its_own_time(tmp_path: Path) -> None:
    """Level Zero counts places on the bus: with the first card gone the second one is the first."""
    slots = Slots(*(StaticDevice(id=it, accelerator="xpu") for it in (FIRST, SECOND)))
    seen = tmp_path / "seen"
    program = f'echo "[$ZE_AFFINITY_MASK]" >>{seen}; exec "$0" "$@"'
    async with opened(tmp_path, probes=(slots, CpuProbe("a processor")), config=QUICK) as home:
        port = POOL.last
        view = await home.launch(
            command=(
                "/bin/sh",
                "-c",
                program,
                home.stub(),
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ),
            port=port,
            devices=(SECOND,),
            restart="on-failure",
        )
        assert seen.read_text() == "[1]\n"
        del slots.devices[0]
        os.kill(pid_of(view), signal.SIGKILL)
        await home.seen(Ready, times=2)
        assert seen.read_text() == "[1]\n[0]\n"
        await home.stop()


async def test_a_restart_while_no_device_can_be_seen_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as home:
        view = await home.launch(devices=(A,))

        async def unknown(**_: object) -> DeviceSnapshot:
            raise DevicesUnknown("the devices have not been seen")

        with monkeypatch.context() as patch:
            patch.setattr(home.house.inventory, "snapshot", unknown)
            with anyio.fail_after(10), pytest.raises(LaunchRefused) as caught:
                await home.supervisor.restart("x", nonce=None, grace_ms=None)
        assert isinstance(caught.value.failure, NoCapacity)
        assert "have not been seen" in str(caught.value.failure.detail)
        assert is_running(pid_of(view))
        await home.stop()
