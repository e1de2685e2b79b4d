"""Every way a launch fails: its type in the reply, once in the events, and nothing left behind.

`Home.refused` holds each failure to what holds for all of them; `Home.again` is GPU-8: the same
name, device and port must serve the next launch.
"""

import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from supervisor.contracts.event import Launching, Warning_
from supervisor.contracts.failure import (
    AlreadyRunning,
    ExitedEarly,
    InstallFailed,
    NoCapacity,
    SpawnFailed,
    UnhealthyTimeout,
    UnsupportedFailure,
)
from supervisor.failures import sentence
from supervisor.lifecycle.errors import InvalidLaunch, NoSuchInstance
from tests.lifecycle.house import CARDS, A, B, Home, free_port, opened
from tests.parts import real_llama

pytestmark = pytest.mark.anyio


# Programs


async def test_a_missing_binary(home: Home) -> None:
    port = free_port()
    failure = await home.refused(binary="/nowhere/llama-server", port=port, devices=(A,))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "binary-missing"
    assert "/nowhere/llama-server" in failure.detail
    await home.again(port=port, devices=(A,))


async def test_a_named_program_that_is_not_on_path(home: Home) -> None:
    failure = await home.refused(binary="no-such-llama-server")
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "binary-missing"
    assert "no-such-llama-server" in failure.detail


async def test_an_engine_that_is_not_installed_says_how_to_get_it(tmp_path: Path) -> None:
    async with opened(tmp_path, inherited_env={"PATH": str(tmp_path)}) as home:
        failure = await home.refused(binary=UNSET, devices=(A,))
        assert isinstance(failure, InstallFailed)
        assert failure.engine == "llamacpp"
        assert "--binary PATH" in sentence(failure)
        await home.again(devices=(A,))


@pytest.mark.parametrize("kind", ["plain", "folder", "bad-interpreter", "not-a-program"])
async def test_a_binary_that_cannot_be_executed(home: Home, tmp_path: Path, kind: str) -> None:
    binary = tmp_path / "engine"
    if kind == "folder":
        binary.mkdir()
    else:
        lines = {"bad-interpreter": "#!/nowhere/python\n", "not-a-program": "\x7fnothing\n"}
        binary.write_text(lines.get(kind, "#!/bin/sh\n"))
        binary.chmod(0o644 if kind == "plain" else 0o755)
    failure = await home.refused(binary=str(binary), devices=(A,))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "not-executable"
    assert str(binary) in failure.detail
    await home.again(devices=(A,))


# Models


async def test_a_missing_model(home: Home) -> None:
    failure = await home.refused(model_path="/nowhere/model.gguf", devices=(A,))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "model-missing"
    assert "/nowhere/model.gguf" in failure.detail
    await home.again(devices=(A,))


async def test_a_folder_is_no_gguf(home: Home, tmp_path: Path) -> None:
    failure = await home.refused(model_path=str(tmp_path))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "model-missing"
    assert ".gguf" in failure.detail


async def test_a_corrupt_model_is_told_by_the_real_server(home: Home, tmp_path: Path) -> None:
    server = real_llama.require("genuine-llama-server")
    whole = real_llama.tiny_gguf().read_bytes()
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(whole[: len(whole) // 2])
    port = free_port()
    failure = await home.refused(
        binary=str(server), model_path=str(torn), port=port, devices=("cpu:0",)
    )
    assert isinstance(failure, ExitedEarly)
    assert (failure.exit_code, failure.signal) == (1, None)
    assert "torn.gguf" in failure.log_tail
    assert "error" in failure.log_tail.lower()
    await home.nothing_left()
    view = await home.launch(
        binary=str(server), model_path=str(real_llama.tiny_gguf()), port=port, devices=("cpu:0",)
    )
    assert view.state == "ready"
    await home.stop()


# Ports


async def test_an_explicit_port_that_is_taken(home: Home) -> None:
    """PID-3."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as holder:
        failure = await home.refused(port=port, devices=(A,))
        assert isinstance(failure, SpawnFailed)
        assert failure.reason == "port-taken"
        assert str(port) in failure.detail
        with socket.create_connection(("127.0.0.1", port), 1):
            holder.accept()[0].close()
    await home.again(port=port, devices=(A,))


async def test_a_port_that_another_record_holds(home: Home) -> None:
    port = free_port()
    await home.launch("holder", port=port)
    failure = await home.refused(port=port, devices=(A,))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "port-taken"
    assert str(port) in failure.detail
    await home.stop("holder")
    await home.again(port=port, devices=(A,))


# Names, engines, devices: refusals before the reservation


async def test_an_unsupported_engine(home: Home) -> None:
    failure = await home.refused(engine="mlx", runtime="docker", devices=(A,))
    assert isinstance(failure, UnsupportedFailure)
    assert failure.engine == "mlx"
    assert failure.reason
    await home.again(devices=(A,))


async def test_a_second_launch_of_a_name(home: Home) -> None:
    first = await home.launch(devices=(A,))
    assert await home.refused(devices=(B,)) == AlreadyRunning(name="x")
    assert home.supervisor.get("x").record == first.record
    await home.stop()
    await home.again(devices=(B,))


async def test_more_devices_than_there_are(home: Home) -> None:
    failure = await home.refused(device_count=3)
    assert isinstance(failure, NoCapacity)
    assert (failure.need, failure.free) == (3, 2)
    await home.again(device_count=2)


async def test_a_device_that_is_not_there(home: Home) -> None:
    failure = await home.refused(devices=("GPU-cccccccc-0000-4000-8000-000000000003",))
    assert isinstance(failure, NoCapacity)
    assert (failure.need, failure.free) == (1, 0)


async def test_a_device_that_is_held(home: Home) -> None:
    await home.launch("holder", devices=(A,))
    failure = await home.refused(devices=(A, B))
    assert isinstance(failure, NoCapacity)
    assert (failure.need, failure.free) == (2, 1)
    assert "holder" in (failure.detail or "")
    await home.stop("holder")
    await home.again(devices=(A, B))


async def test_more_memory_than_a_device_has(home: Home) -> None:
    failure = await home.refused(devices=(A,), memory_bytes=25 << 30)
    assert isinstance(failure, NoCapacity)
    assert (failure.need_bytes, failure.free_bytes) == (25 << 30, CARDS[0].memory_bytes)


async def test_a_refusal_leaves_no_tombstone_and_a_failed_launch_leaves_one(home: Home) -> None:
    await home.refused("refused", device_count=3)
    with pytest.raises(NoSuchInstance):
        home.supervisor.get("refused")
    failure = await home.refused("failed", model_path="/nowhere/model.gguf")
    view = home.supervisor.get("failed")
    assert (view.state, view.failure, view.exit) == ("exited", failure, None)
    assert home.supervisor.list() == ()
    assert [it.record.name for it in home.supervisor.list(ended=True)] == ["failed"]
    assert (await home.stop("failed")).failure == failure
    assert (await home.cancel("failed")).failure == failure


# The disk


async def test_a_log_that_cannot_be_written(home: Home) -> None:
    in_the_way = f"{home.house.paths.log_dir}/engines"
    make_file(in_the_way)
    failure = await home.refused(devices=(A,))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "log-unwritable"
    assert in_the_way in failure.detail
    remove(in_the_way)
    await home.again(devices=(A,))


def make_file(path: str) -> None:
    Path(path).parent.mkdir()
    Path(path).touch()


def remove(path: str) -> None:
    Path(path).unlink()


def everything_in(folder: Path) -> set[Path]:
    return {*folder.rglob("*")}


class Disk:
    """A disk that a test can fill, as the record store meets it."""

    def __init__(self) -> None:
        self.errno = 0
        self.after_writes = 0

    def __call__(self, step: str) -> None:
        if step != "write" or not self.errno:
            return
        if self.after_writes:
            self.after_writes -= 1
            return
        raise OSError(self.errno, os.strerror(self.errno))


@asynccontextmanager
async def home_on(disk: Disk, folder: Path) -> AsyncIterator[Home]:
    async with opened(folder, store_step=disk) as home:
        yield home


@pytest.mark.parametrize("writes", [0, 1], ids=["reservation", "handle"])
@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "disk-full"), (errno.EROFS, "denied")]
)
async def test_a_record_that_cannot_be_written(
    tmp_path: Path, number: int, reason: str, writes: int
) -> None:
    """The handle's write fails with a stub behind the gate: it never becomes an engine."""
    disk = Disk()
    async with home_on(disk, tmp_path) as home:
        disk.errno, disk.after_writes = number, writes
        marker = tmp_path / "ran"
        failure = await home.refused(binary=home.stub(up=str(marker)), devices=(A,))
        assert isinstance(failure, SpawnFailed)
        assert failure.reason == reason
        assert "record" in failure.detail
        assert not marker.exists()
        assert {it.code for it in home.of(Warning_)} <= {"record-write-failed"}
        disk.errno = 0
        await home.again(devices=(A,))


async def test_a_full_disk_ends_no_engine_and_stops_no_stop(tmp_path: Path) -> None:
    disk = Disk()
    async with home_on(disk, tmp_path) as home:
        disk.errno, disk.after_writes = errno.ENOSPC, 2
        view = await home.launch(devices=(A,))
        assert view.state == "ready"
        assert (await home.stop()).state == "exited"
        await home.nothing_left()
        assert {it.code for it in home.of(Warning_)} == {"record-write-failed"}


# Time


async def test_a_deadline_that_passes(home: Home) -> None:
    """STR-1: how long was waited, what the last probe saw, and nothing sticky."""
    port = free_port()
    loading = home.stub(load=0.9)
    failure = await home.refused(binary=loading, port=port, devices=(A,), ready_deadline_ms=400)
    assert isinstance(failure, UnhealthyTimeout)
    assert 400 <= failure.waited_ms < 400 + 250 + 500
    assert "503" in (failure.last_probe or "")
    assert "listening" in failure.log_tail
    await home.again(binary=loading, port=port, devices=(A,), ready_deadline_ms=15_000)


# Params that are no launch at all


@pytest.mark.parametrize(
    "members",
    [
        {"model_path": "relative.gguf"},
        {"devices": ()},
        {"devices": (A, A)},
        {"devices": (A,), "device_count": 2},
        {"device_count": 0},
        {"port": 0},
        {"port": 65_536},
        {"port": 18_080, "extra_args": ("--port", "19090")},
        {"port": 18_080, "extra_args": ("--port=19090",)},
        {"port": 18_080, "env": {"LLAMA_ARG_PORT": "19090"}},
        {"extra_args": ("a\0b",)},
        {"env": {"A=B": "x"}},
        {"command": ()},
        {"command": ("",)},
        {"docker_image": "image\0"},
        {"binary": "/bin/tr\0ue"},
        {"served_model_name": "m\0"},
        {"binary": "bin/llama-server"},
        {"install": "missing"},
        {"ready_deadline_ms": 0},
        {"ready_deadline_ms": -1},
        {"memory_bytes": 0},
        {"memory_bytes": -1},
        {"devices": (A,), "env": {"CUDA_VISIBLE_DEVICES": B}},
    ],
    ids=lambda members: str(members)[:60],
)
async def test_an_invalid_launch_tries_and_tells_nothing(
    home: Home, members: dict[str, Any]
) -> None:
    with pytest.raises(InvalidLaunch) as caught:
        await home.launch(**members)
    assert str(caught.value)
    assert home.story() == []
    await home.nothing_left()


@pytest.mark.parametrize(
    "name", ["org/model:Q4", "../../etc/x", ".", "", "a" * 300, "a b", "🦙", "a\0b", "-x", "a\n"]
)
async def test_a_name_that_could_become_a_path_is_refused(
    home: Home, name: str, tmp_path: Path
) -> None:
    """ARG-6."""
    before = everything_in(tmp_path)
    with pytest.raises(InvalidLaunch):
        await home.supervisor.launch(home.params(name, binary="/bin/true"))
    assert everything_in(tmp_path) - {tmp_path / "model.gguf"} == before


async def test_twins_of_names_and_long_ones_are_instances_of_their_own(home: Home) -> None:
    names = ("Twin", "twin", "a" * 63, "0.json")
    for name in names:
        view = await home.launch(name, served_model_name="org/model:Q4")
        assert view.record.name == name
    assert [it.record.name for it in home.supervisor.list()] == sorted(names)
    argv = [it.plan.argv for it in home.of(Launching)]
    assert all("org/model:Q4" in words for words in argv)
    for name in names:
        assert (await home.stop(name)).record.name == name
