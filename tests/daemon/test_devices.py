"""The real daemon over the real binding over a fake NVML: what a host's GPUs do to it."""

import json
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import UNSET

from supervisor.client import Client, RpcError
from supervisor.contracts.device import DeviceSnapshot
from supervisor.contracts.failure import NoCapacity
from tests.daemon.engined import Engined, stop
from tests.devices.test_sysfs import JETSON
from tests.devices.trees import card, roots
from tests.parts.fake_nvml import MIB, FakeNvml, gpu, uuid

SOON = 20.0
PAUSE_S = 0.55
"""Fifty of them, with what lies between, take half a minute: several times a probe's patience."""


@pytest.fixture
def bare(engined: Engined) -> Engined:
    """A daemon that is told of no devices: what there is, it finds."""
    told = engined.config.read_text()
    engined.config.write_text(told.partition("[devices]")[0])
    return engined


def until(client: Client, fact: Callable[[DeviceSnapshot], bool]) -> DeviceSnapshot:
    deadline = time.monotonic() + SOON
    while not fact(snapshot := client.snapshot()):
        assert time.monotonic() < deadline, snapshot
        time.sleep(0.1)
    return snapshot


def told(engined: Engined, kind: str, count: int = 1) -> list[dict[str, Any]]:
    """As many events of the kind; the journal may have them a moment later than a reply."""
    deadline = time.monotonic() + SOON
    while True:
        events = [event for event in engined.events() if event["kind"] == kind]
        if len(events) >= count:
            return events
        assert time.monotonic() < deadline, events
        time.sleep(0.02)


def ids(snapshot: DeviceSnapshot) -> list[str]:
    return [it.id for it in snapshot.accelerators]


class Beats:
    """A service manager that watches a daemon, which is to say that it lives within 5 s."""

    def __init__(self, path: Path) -> None:
        self.env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "5000000"}
        self._heard = [time.monotonic()]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while data := self._socket.recv(4096):
            if b"WATCHDOG=1" in data:
                self._heard.append(time.monotonic())

    def longest_gap(self) -> float:
        assert len(self._heard) > 1, "it was never heard of"
        return max(b - a for a, b in pairwise([*self._heard, time.monotonic()]))


def start(
    engined: Engined, nvml: FakeNvml, mask: str | None = None, watchdog: Beats | None = None
) -> Client:
    hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    assert not [name for name in hidden if name in os.environ]
    env: dict[str, Any] = {**nvml.env}
    if watchdog is not None:
        env |= watchdog.env
    if mask is not None:
        env["CUDA_VISIBLE_DEVICES"] = mask
    return engined.start(**env)


@pytest.mark.parametrize("mem", [0, 2], ids=["not-supported", "zeros"])
def test_unified_memory_is_one_pool(bare: Engined, nvml: FakeNvml, mem: int) -> None:
    """TEL-1: the GPU's figures are the host's, and the sum over pools is what the host has."""
    nvml.say(
        gpu(0, name="NVIDIA_GB10", cc="12.1", mem=mem),
        gpu(1, mem=0),
        gpu(2, total=24_576, used=1_000),
    )
    client = start(bare, nvml)
    snapshot = client.snapshot()
    integrated, discrete, ordinary, cpu = snapshot.accelerators
    assert ordinary.memory_total_bytes == 24_576 * MIB
    assert ordinary.memory_used_bytes == 1_000 * MIB
    host = snapshot.host
    for device in (integrated, cpu):
        assert device.unified_memory
        assert device.memory_total_bytes == host.memory_total_bytes
        used = host.memory_total_bytes - host.memory_available_bytes
        assert device.memory_used_bytes == used
    assert not discrete.unified_memory
    assert (discrete.memory_total_bytes, discrete.memory_used_bytes) == (None, None)


def test_a_jetson_and_cards_by_sysfs(bare: Engined, tmp_path: Path) -> None:
    """TEL-6: the kernel's own figures, each under the id of the card that they belong to."""
    meminfo = f"MemTotal: {128 << 20} kB\nMemAvailable: {100 << 20} kB"
    bare_card = {"vendor": "0x1002"}
    full_card = {
        "vendor": "0x1002",
        "mem_info_vram_total": str(8 << 30),
        "mem_info_vram_used": str(1 << 30),
    }
    hardware = tmp_path / "hardware"
    roots(
        hardware,
        {
            "proc/meminfo": meminfo,
            **JETSON,
            **card(0, "0000:03:00.0", bare_card, driver="amdgpu"),
            **card(1, "0000:83:00.0", full_card, driver="amdgpu"),
        },
    )
    client = bare.start(HARDWARE=str(hardware), LD_LIBRARY_PATH="")
    shown = {it.id: it for it in client.snapshot().accelerators}
    assert list(shown) == ["tegra:0", "amd:0000:03:00.0", "amd:0000:83:00.0", "cpu:0"]
    jetson = shown["tegra:0"]
    assert (jetson.utilization_pct, jetson.temperature_c) == (47.3, 45.5)
    assert (jetson.memory_total_bytes, jetson.memory_used_bytes) == (128 << 30, 28 << 30)
    assert shown["amd:0000:03:00.0"].memory_total_bytes is None
    assert shown["amd:0000:83:00.0"].memory_used_bytes == 1 << 30
    assert shown["cpu:0"].temperature_c == 48
    facts = bare.folder / "facts.json"
    binary = bare.stub(dump=str(facts))
    client.launch(bare.params("j", devices=("tegra:0",), exclusive=True, binary=binary))
    assert environment(facts)["CUDA_VISIBLE_DEVICES"] == "0"
    client.launch(bare.params("a", devices=("amd:0000:83:00.0",), binary=binary))
    assert environment(facts)["ROCR_VISIBLE_DEVICES"] == "1"


def test_a_driver_mismatch_heals_without_a_restart(bare: Engined, nvml: FakeNvml) -> None:
    """TEL-2: a reason instead of devices, and no pretending that this is a CPU host."""
    nvml.say("init 18")
    client = start(bare, nvml)
    snapshot = client.snapshot()
    assert ids(snapshot) == ["cpu:0"]
    [report] = [it for it in snapshot.probes if it.probe == "nvidia"]
    assert report.state == "failed"
    assert report.reason
    profile = client.profile()
    assert (profile.accelerator, profile.device_count) == ("cuda", 0)
    with pytest.raises(RpcError) as refused:
        client.launch(bare.params(devices=UNSET, device_count=1))
    assert refused.value.code == 1003
    assert isinstance(refused.value.failure, NoCapacity)
    assert "the probe for nvidia failed: NVML" in str(refused.value.failure.detail)
    nvml.say(gpu(0, limit=-1, util=4_000), "proc gpu=0 pid=1 used=-1")
    snapshot = until(client, lambda it: uuid(0) in ids(it))
    device = snapshot.accelerators[0]
    assert (device.utilization_pct, device.power_limit_watts) == (None, None)
    assert device.processes
    assert device.processes[0].memory_bytes is None
    assert [it["device"] for it in told(bare, "device-found")] == [uuid(0)]
    assert [it["code"] for it in told(bare, "warning")] == ["probe-failed"]


def probe_children(daemon: psutil.Process) -> int:
    """How many processes ask devices for it; one that is ended this moment is none."""
    count = 0
    for child in daemon.children():
        with suppress(psutil.Error):
            count += "devices.child" in " ".join(child.cmdline())
    return count


def test_a_driver_that_hangs_holds_up_nothing(bare: Engined, nvml: FakeNvml) -> None:
    """TEL-4: fifty snapshots in half a minute, launches and stops, and quick answers all along."""
    nvml.say(gpu(0, util=37), gpu(1))
    beats = Beats(bare.folder / "notify")
    client, other = start(bare, nvml, watchdog=beats), bare.client()
    assert client.snapshot().accelerators[0].utilization_pct == 37
    daemon = psutil.Process(bare.pid)
    client.launch(bare.params("first", devices=(uuid(1),)))  # what launches start and keep
    stop(client, "first")
    threads = daemon.num_threads()
    nvml.say(gpu(0, util=99), gpu(1), "hang nvmlDeviceGetUtilizationRates")
    time.sleep(1.1)
    snapshots, pings, probing = [], [], []
    for at in range(50):
        began = time.monotonic()
        snapshot = client.snapshot()
        snapshots.append(time.monotonic() - began)
        began = time.monotonic()
        other.info()
        pings.append(time.monotonic() - began)
        if at % 10 == 0:
            client.launch(bare.params(f"x{at}", devices=(uuid(1),)))
            stop(client, f"x{at}")
        probing.append(probe_children(daemon))
        time.sleep(PAUSE_S)
    assert max(snapshots) < 3
    assert statistics.median(snapshots) < 0.1
    assert statistics.median(pings) < 0.1
    assert daemon.num_threads() <= threads + 2
    assert max(probing) == 1
    first = snapshot.accelerators[0]
    assert first.utilization_pct == 37
    assert first.age_ms
    [report] = [it for it in snapshot.probes if it.probe == "nvidia"]
    assert report.state == "stale"
    assert beats.longest_gap() < 5
    nvml.say(gpu(0, util=5), gpu(1))
    until(client, lambda it: it.accelerators[0].utilization_pct == 5)


def test_a_daemon_leaves_at_once_although_a_driver_hangs(bare: Engined, nvml: FakeNvml) -> None:
    nvml.say("hang nvmlInit")
    start(bare, nvml)
    time.sleep(1)  # it is being asked by now
    children = psutil.Process(bare.pid).children(recursive=True)
    began = time.monotonic()
    assert bare.process is not None
    bare.process.terminate()
    assert bare.gone() == 0
    assert time.monotonic() - began < 3
    assert not [it for it in children if it.is_running()]


def test_a_daemon_keeps_to_its_own_mask(bare: Engined, nvml: FakeNvml) -> None:
    """GPU-4: two of eight are offered, and an engine's mask names the card itself."""
    nvml.say(*(gpu(at) for at in range(8)))
    client = start(bare, nvml, mask="4,5")
    assert ids(client.snapshot()) == [uuid(4), uuid(5), "cpu:0"]
    assert client.profile().device_count == 2
    facts = bare.folder / "facts.json"
    view = client.launch(bare.params(devices=(uuid(5),), binary=bare.stub(dump=str(facts))))
    assert view.record.devices == (uuid(5),)
    assert environment(facts)["CUDA_VISIBLE_DEVICES"] == uuid(5)
    with pytest.raises(RpcError) as outside:
        client.launch(bare.params("y", devices=(uuid(3),)))
    assert outside.value.code == 1003
    client.launch(bare.params("z", devices=("cpu:0",), binary=bare.stub(dump=str(facts))))
    assert environment(facts)["CUDA_VISIBLE_DEVICES"] == ""
    with pytest.raises(RpcError) as wider:
        client.launch(bare.params("w", devices=(uuid(4),), env={"CUDA_VISIBLE_DEVICES": "4"}))
    assert wider.value.code == 1102


def environment(facts: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(facts.read_text())["env"]
    facts.unlink()
    return found


def test_a_lost_gpu_keeps_its_lease_and_comes_back(bare: Engined, nvml: FakeNvml) -> None:
    nvml.say(gpu(0), gpu(1))
    client = start(bare, nvml)
    client.launch(bare.params(devices=(uuid(0),)))
    nvml.say(gpu(0), gpu(1), "fail * 15 0")
    snapshot = until(client, lambda it: uuid(0) not in ids(it))
    [lost] = snapshot.lost
    assert lost.id == uuid(0)
    assert "is lost" in lost.reason
    [event] = told(bare, "device-lost")
    assert (event["device"], event["reason"]) == (uuid(0), lost.reason)
    leases = {it.device: it for it in client.leases().leases}
    assert [it.name for it in leases[uuid(0)].holders] == ["x"]
    assert not leases[uuid(0)].present
    nvml.say(gpu(0), gpu(1))
    assert until(client, lambda it: uuid(0) in ids(it)).lost == ()
    assert [it["device"] for it in told(bare, "device-found")] == [uuid(0)]
    stop(client)


@pytest.mark.parametrize("outcome", ["returned", "left"])
def test_a_stop_has_a_receipt_for_device_memory(
    bare: Engined, nvml: FakeNvml, outcome: str
) -> None:
    """What the driver still sees of a tree that is gone is told, and holds up no stop."""
    nvml.say(gpu(0))
    client = start(bare, nvml)
    client.snapshot()
    ref = client.launch(bare.params(devices=(uuid(0),))).record.ref
    pid = getattr(ref, "pid", 0)
    nvml.say(gpu(0), f"proc gpu=0 pid={pid} used=5")
    until(client, lambda it: bool(it.accelerators[0].processes))
    if outcome == "returned":
        nvml.say(gpu(0))
    began = time.monotonic()
    assert stop(client).state == "exited"
    assert time.monotonic() - began < 10
    [event] = told(bare, "stopped")
    assert event["deviceMemory"] == outcome
    warned = [it["detail"] for it in told(bare, "warning", 0) if it["code"] == "memory-left"]
    assert len(warned) == (outcome == "left")
    for detail in warned:
        assert f"{pid} ({5 * MIB} bytes of {uuid(0)})" in detail
    nvml.say(gpu(0))
    client.launch(bare.params("y", devices=(uuid(0),)))
    stop(client, "y")
