"""Pinned holds: nobody gets their devices, nobody acts on them, and only a release ends them."""

import errno
import os
import signal
from pathlib import Path

import anyio
import pytest
from msgspec import UNSET

from supervisor.client import RpcError
from supervisor.contracts.engine import EngineId
from supervisor.contracts.event import Pinned, Released
from supervisor.contracts.failure import AlreadyRunning, LaunchFailure, NoCapacity
from supervisor.contracts.instance import PinnedHandle
from supervisor.contracts.rpc import PinParams
from supervisor.lifecycle.errors import (
    InvalidLaunch,
    LaunchRefused,
    NoSuchInstance,
    NotDone,
    NotOurs,
    PinnedInstance,
)
from tests.daemon.engined import Engined, stop
from tests.daemon.test_life import wait_for
from tests.lifecycle.house import SOON, A, B, BentClock, Home, opened

pytestmark = pytest.mark.anyio


def hold(
    name: str = "p", *devices: str, holder: str = "speech", engine: EngineId = "vllm"
) -> PinParams:
    return PinParams(name=name, holder=holder, engine=engine, devices=devices or (A,))


async def refused(home: Home, params: PinParams) -> LaunchFailure:
    with pytest.raises(LaunchRefused) as caught:
        await home.supervisor.pin(params)
    return caught.value.failure


async def release(home: Home, name: str = "p") -> None:
    await home.supervisor.release(name)


async def test_a_pin_is_a_ready_record_without_a_process(tmp_path: Path) -> None:
    async with opened(tmp_path) as home:
        view = await home.supervisor.pin(hold())
        record = home.record_on_disk("p")
        assert record == view.record
        assert (record.ref, record.port, record.engine, record.devices) == (
            *(PinnedHandle(holder="speech"), 0, "vllm", (A,)),
        )
        assert record.supervision is UNSET
        assert (view.state, view.intent, view.log_path) == ("ready", None, None)
        assert home.supervisor.info().counts == {"ready": 1}
        assert await home.holders() == {A: ["p"]}
        assert home.of(Pinned) == [
            Pinned(instance="p", nonce=record.nonce, holder="speech", devices=(A,))
        ]
        with anyio.fail_after(SOON):
            waited = await home.supervisor.wait("p", nonce=None, until="ready", timeout_ms=None)
        assert waited == view

        reply = await home.supervisor.release("p")
        assert reply.devices == (A,)
        assert reply.view
        assert reply.view.state == "exited"
        assert home.of(Released) == [Released(instance="p", nonce=record.nonce, devices=(A,))]
        assert home.supervisor.get("p").state == "exited"
        with pytest.raises(NoSuchInstance):
            await home.supervisor.release("p")
        await home.again("p", devices=(A,))


async def test_nobody_else_gets_what_a_pin_holds(tmp_path: Path) -> None:
    async with opened(tmp_path) as home:
        await home.supervisor.pin(hold())
        failure = await home.refused("x", devices=(A,))
        assert isinstance(failure, NoCapacity)
        assert isinstance(failure.detail, str)
        assert "p (exclusive)" in failure.detail
        assert await home.refused("p", devices=(B,)) == AlreadyRunning(name="p")
        view = await home.launch("x", device_count=1)
        assert view.record.devices == (B,)
        assert await refused(home, hold("p", B)) == AlreadyRunning(name="p")
        taken = await refused(home, hold("q", A, B))
        assert isinstance(taken, NoCapacity)
        assert (taken.need, taken.free) == (2, 0)
        await home.stop("x")
        await release(home)


async def test_nothing_but_a_release_ends_a_pin(tmp_path: Path) -> None:
    async with opened(tmp_path) as home:
        await home.supervisor.pin(hold())
        for call in (home.supervisor.stop, home.supervisor.cancel, home.supervisor.restart):
            with pytest.raises(PinnedInstance, match="enginectl release p"):
                await call("p", nonce=None, grace_ms=None)
        drained = await home.supervisor.drain(grace_ms=0)
        assert (drained.stopped, drained.failed) == ((), {})
        assert home.supervisor.get("p").state == "ready"
        await release(home)


async def test_a_running_instance_is_no_hold(tmp_path: Path) -> None:
    async with opened(tmp_path) as home:
        await home.launch()
        with pytest.raises(NotOurs):
            await home.supervisor.release("x")
        await home.stop()


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (hold("../p"), "no instance name"),
        (hold(holder=" "), "holder"),
        (hold(holder="a\nb"), "holder"),
        (PinParams(name="p", holder="h", engine="vllm", devices=()), "empty"),
        (hold("p", A, A), "twice"),
    ],
)
async def test_a_pin_that_makes_no_sense_is_invalid(
    tmp_path: Path, params: PinParams, why: str
) -> None:
    async with opened(tmp_path) as home:
        with pytest.raises(InvalidLaunch, match=why):
            await home.supervisor.pin(params)
        absent = await refused(home, hold("p", "GPU-nowhere"))
        assert isinstance(absent, NoCapacity)


async def test_a_pin_lives_over_a_reboot(tmp_path: Path) -> None:
    """Of another boot nothing else is taken up as it was; a pin is, for it has no process."""
    async with opened(tmp_path, clean=False) as home:
        view = await home.supervisor.pin(hold())
    path = tmp_path / "state" / "instances" / "p.json"
    before = path.read_bytes()

    class NextBoot(BentClock):
        @property
        def boot_id(self) -> str:
            return "99999999-0000-4000-8000-000000000000"

    async with opened(tmp_path, clock=NextBoot()) as home:
        assert home.supervisor.get("p") == view
        assert home.story("p") == []
        assert path.read_bytes() == before
        assert isinstance(await home.refused("x", devices=(A,)), NoCapacity)
        await release(home)


async def test_a_pin_that_cannot_be_written_holds_nothing(tmp_path: Path) -> None:
    def full(step: str) -> None:
        if armed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    armed = False
    async with opened(tmp_path, store_step=full) as home:
        armed = True
        with pytest.raises(NotDone, match="No space left"):
            await home.supervisor.pin(hold())
        armed = False
        await home.nothing_left()
        assert home.of(Pinned) == []

        await home.supervisor.pin(hold())
        armed = True
        with pytest.raises(NotDone, match="could not be removed"):
            await home.supervisor.release("p")
        armed = False
        assert await home.holders() == {A: ["p"]}
        assert home.of(Released) == []
        await release(home)


async def test_pins_that_race_have_one_winner(tmp_path: Path) -> None:
    async with opened(tmp_path) as home:
        won: list[str] = []

        async def pin(name: str) -> None:
            try:
                await home.supervisor.pin(hold(name, A, B))
                won.append(name)
            except LaunchRefused:
                pass

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(pin, f"p{number}")
        assert len(won) == 1
        await release(home, won[0])


def test_a_pin_outlives_the_daemon(tmp_path: Path) -> None:
    """Killed, the next daemon finds the hold as it was; told to stop it, it refuses."""
    engined = Engined(tmp_path)
    try:
        client = engined.start()
        view = client.pin(hold())
        wait_for(lambda: engined.story("p") == ["pinned"])
        assert engined.end(signal.SIGKILL) == -signal.SIGKILL
        client = engined.start()
        again = client.get("p")
        assert (again.record, again.state) == (view.record, "ready")
        assert engined.story("p") == ["pinned"]
        with pytest.raises(RpcError) as caught:
            stop(client, "p")
        assert caught.value.code == 1104
        [lease] = [it for it in client.leases().leases if it.device == A]
        assert [it.name for it in lease.holders] == ["p"]
        assert client.release("p").devices == (A,)
        wait_for(lambda: engined.story("p") == ["pinned", "released"])
        assert engined.records() == []
        engined.end(signal.SIGTERM)
        client = engined.start()
        assert client.get("p").state == "exited"
        assert client.list().instances == ()
    finally:
        engined.close()
