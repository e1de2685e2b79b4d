"""What the host offers: probed and declared devices, one snapshot for all who ask."""

import os
import platform
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from supervisor.clock import rfc3339
from supervisor.contracts.config import StaticDevice
from supervisor.contracts.device import DeviceAccess, ThermalInfo
from supervisor.contracts.host import Accelerator
from supervisor.devices import host
from supervisor.devices import inventory as inventory_module
from supervisor.devices.cpu import CPU_DEVICE, CpuProbe
from supervisor.devices.inventory import FRESH_NS, DevicesUnknown, Inventory
from supervisor.devices.probe import Probe, ProbeAnswer
from supervisor.devices.prober import Held, Prober
from supervisor.devices.static import StaticProbe
from supervisor.devices.telling import TELLING_S
from tests.devices.trees import roots
from tests.parts.fake_nvml import FakeNvml, gpu

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Hands:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.ns = 10**15

    def __call__(self) -> int:
        return self.ns


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Counting:
    """A probe that says how often it was asked, and in which thread."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def sample(self) -> ProbeAnswer:
        self.threads.append(threading.get_ident())
        return ProbeAnswer()


def inventory(
    *probes: Probe, clock: Hands | None = None, volumes: Sequence[str] = (), **more: Any
) -> Inventory:
    return Inventory(
        probes, volumes, monotonic_ns=clock or Hands(), wall=lambda: NOW, stamp=rfc3339, **more
    )


def static(*kinds: Accelerator) -> StaticProbe:
    devices = [StaticDevice(id=f"{kind}:{at}", accelerator=kind) for at, kind in enumerate(kinds)]
    return StaticProbe(devices)


def test_a_declared_device_says_what_the_config_says_and_null_otherwise() -> None:
    known = StaticDevice(id="GPU-1", accelerator="cuda", memory_bytes=8 << 30, name="a card")
    unknown = StaticDevice(id="amd:1", accelerator="rocm")
    one, other = StaticProbe([known, unknown]).sample().accelerators
    assert (one.id, one.vendor, one.name, one.index) == ("GPU-1", "nvidia", "a card", 0)
    assert (one.memory_total_bytes, one.memory_used_bytes) == (8 << 30, None)
    assert (other.vendor, other.name, other.index) == ("amd", "amd:1", 1)
    assert other.memory_total_bytes is None
    assert (other.utilization_pct, other.temperature_c, other.power_watts) == (None, None, None)


@pytest.mark.anyio
async def test_the_processor_is_a_device_on_the_hosts_memory() -> None:
    moment = Seconds()
    snapshot = await inventory(CpuProbe("a processor", moment)).snapshot()
    [cpu] = snapshot.accelerators
    assert (cpu.id, cpu.accelerator, cpu.name) == (CPU_DEVICE, "cpu", "a processor")
    assert cpu.unified_memory
    assert cpu.memory_total_bytes == snapshot.host.memory_total_bytes
    available = snapshot.host.memory_available_bytes
    assert cpu.memory_used_bytes == snapshot.host.memory_total_bytes - available


def test_load_is_not_known_before_there_was_time_to_measure_it() -> None:
    """Never 0: the first answer would be about no time at all."""
    moment = Seconds()
    probe = CpuProbe("a processor", moment)
    assert probe.sample().accelerators[0].utilization_pct is None
    moment.now += 1
    load = probe.sample().accelerators[0].utilization_pct
    assert load is not None
    assert 0 <= load <= 100


@pytest.mark.parametrize(
    ("kinds", "accelerator", "count", "unified"),
    [
        ((), "cpu", 0, True),
        (("cuda", "cuda"), "cuda", 2, False),
        (("metal",), "metal", 1, True),
        (("xpu", "rocm"), "rocm", 2, False),
        (("cpu",), "cpu", 0, True),
    ],
)
@pytest.mark.anyio
async def test_the_profile_counts_declared_devices_as_probed_ones(
    kinds: tuple[Accelerator, ...], accelerator: Accelerator, count: int, unified: bool
) -> None:
    profile = await inventory(static(*kinds), CpuProbe("p")).profile()
    assert (profile.accelerator, profile.device_count) == (accelerator, count)
    assert profile.unified_memory == unified
    assert profile.node_id == "self"
    assert (profile.docker, profile.docker_gpu) == (False, False)


@pytest.mark.anyio
async def test_all_who_ask_at_once_share_one_round_in_a_worker_thread() -> None:
    probe, clock = Counting(), Hands()
    shared = inventory(probe, clock=clock)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(shared.snapshot)
    assert len(probe.threads) == 1
    assert probe.threads[0] != threading.get_ident()
    clock.ns += FRESH_NS
    await shared.snapshot()
    assert len(probe.threads) == 1
    clock.ns += 1
    await shared.snapshot()
    assert len(probe.threads) == 2


@pytest.mark.anyio
async def test_a_probe_that_fails_hides_no_other_and_is_asked_again() -> None:
    class Failing(Counting):
        def sample(self) -> ProbeAnswer:
            answer = super().sample()
            if len(self.threads) == 1:
                raise OSError("the driver is loading")
            return replace(answer, accelerators=static("rocm").sample().accelerators)

    failing = inventory(Failing(), CpuProbe("p"))
    assert [it.id for it in (await failing.snapshot()).accelerators] == [CPU_DEVICE]
    again = (await failing.snapshot(fresh=True)).accelerators
    assert [it.id for it in again] == ["rocm:0", CPU_DEVICE]
    assert [it.index for it in again] == [0, 1]


@pytest.mark.anyio
async def test_who_is_cancelled_does_not_end_the_round_of_others() -> None:
    class Slow(Counting):
        def sample(self) -> ProbeAnswer:
            time.sleep(0.3)
            return super().sample()

    probe = Slow()
    shared = inventory(probe)
    with anyio.move_on_after(0.05) as hurry:
        await shared.snapshot()
    assert hurry.cancelled_caught
    await shared.snapshot()
    assert len(probe.threads) == 1


@pytest.mark.anyio
async def test_a_snapshot_names_what_it_can_fill(tmp_path: Path) -> None:
    volumes = (str(tmp_path), str(tmp_path / "not" / "there"))
    snapshot = await inventory(static("cuda"), volumes=volumes).snapshot()
    assert snapshot.sampled_at == "2026-01-02T03:04:05.000Z"
    assert snapshot.capabilities == ("storage", "hostMemory")
    assert len(snapshot.storage) == 1
    assert snapshot.storage[0].free_bytes is not None
    assert snapshot.storage[0].total_bytes is not None
    assert snapshot.storage[0].free_bytes <= snapshot.storage[0].total_bytes
    assert snapshot.host.cpu_count >= 1
    assert snapshot.host.memory_available_bytes <= snapshot.host.memory_total_bytes
    with_cpu = await inventory(static("cuda"), CpuProbe("p")).snapshot()
    assert with_cpu.capabilities == ("memory", "utilization", "hostMemory")
    assert [it.id for it in with_cpu.accelerators] == ["cuda:0", CPU_DEVICE]


@pytest.mark.parametrize(
    ("release", "wsl"),
    [
        ("5.15.153.1-microsoft-standard-WSL2", True),
        ("4.4.0-19041-Microsoft", True),
        ("6.18.44", False),
        ("6.8.0-1021-azure", False),
    ],
)
def test_wsl_is_known_by_its_kernel(release: str, wsl: bool) -> None:
    assert host.is_wsl(release) == wsl


def test_the_processors_name_is_the_kernels_else_the_architecture(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    assert host.cpu_model(path) == platform.machine()
    path.write_text("processor : 0\nmodel name\t: A Processor @ 2.00GHz\nflags : x\n")
    assert host.cpu_model(path) == "A Processor @ 2.00GHz"
    path.write_bytes(b"Features : \xff\xfe\n")
    assert host.cpu_model(path) == platform.machine()


def test_an_architecture_that_no_engine_runs_on_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine, arch in (("x86_64", "x64"), ("AMD64", "x64"), ("aarch64", "arm64")):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        assert host.host_arch() == arch
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(RuntimeError, match="riscv64"):
        host.host_arch()


class Told(Prober):
    """A prober that was told what to say."""

    def __init__(self, **held: Held) -> None:
        super().__init__(("/nowhere",))
        self.held = held

    def ask(self, vendors: Iterable[str]) -> dict[str, Held]:
        return self.held


def nvidia(*names: str, **more: Any) -> Held:
    [card] = static("cuda").sample().accelerators
    devices = tuple(
        replace(card, id=name, vendor="nvidia", access=DeviceAccess()) for name in names
    )
    return Held(ProbeAnswer(accelerators=devices, **more), "ok", 0.0)


@pytest.mark.anyio
async def test_a_place_counts_what_a_mask_hides() -> None:
    """Else a runtime that takes numbers would be given a card of somebody else's."""
    env = {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-d"}
    told = Told(nvidia=nvidia("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    shown = (await inventory(prober=told, env=env).snapshot()).accelerators
    places = [(it.id, it.index, it.access.place) for it in shown if it.access]
    assert places == [("GPU-c", 0, 2), ("GPU-d", 1, 3)]
    told = Told(nvidia=nvidia("GPU-a", "GPU-c", lost=("GPU 1 is lost",)))
    shown = (await inventory(prober=told).snapshot()).accelerators
    assert [it.access.place for it in shown if it.access] == [None, None]


@pytest.mark.anyio
async def test_a_declared_device_that_is_probed_too_is_there_once() -> None:
    declared = StaticProbe([StaticDevice(id="GPU-a", accelerator="cuda", name="declared")])
    told = Told(nvidia=nvidia("GPU-a"))
    [device] = (await inventory(declared, prober=told).snapshot()).accelerators
    assert device.name != "declared"


@pytest.mark.anyio
async def test_old_figures_go_and_the_device_stays() -> None:
    answer = nvidia("GPU-a").answer
    busy = replace(answer.accelerators[0], utilization_pct=50.0, memory_used_bytes=7)
    held = Held(ProbeAnswer(accelerators=(busy,)), "stale", 12.0)
    [device] = (await inventory(prober=Told(nvidia=held)).snapshot()).accelerators
    assert (device.age_ms, device.utilization_pct) == (12_000, 50)
    held = Held(ProbeAnswer(accelerators=(busy,)), "stale", TELLING_S + 1)
    [device] = (await inventory(prober=Told(nvidia=held)).snapshot()).accelerators
    assert (device.age_ms, device.utilization_pct) == (61_000, None)
    assert (device.memory_used_bytes, device.processes) == (None, UNSET)


@pytest.mark.anyio
async def test_an_intel_processors_gpu_makes_no_accelerator() -> None:
    [device] = static("xpu").sample().accelerators
    own = replace(device, vendor="intel", unified_memory=True)
    held = Held(ProbeAnswer(accelerators=(own,)), "ok", 0.0)
    profile = await inventory(CpuProbe("p"), prober=Told(intel=held)).profile()
    assert (profile.accelerator, profile.device_count) == ("cpu", 1)
    card = Held(ProbeAnswer(accelerators=(replace(own, unified_memory=False),)), "ok", 0.0)
    profile = await inventory(CpuProbe("p"), prober=Told(intel=card)).profile()
    assert profile.accelerator == "xpu"


@pytest.mark.anyio
async def test_every_temperature_is_told_and_the_processors_is_its_own() -> None:
    warm = replace(nvidia("GPU-a").answer.accelerators[0], temperature_c=41.0)
    package = ThermalInfo(label="coretemp Package id 0", celsius=52.0, source="cpu")
    core = ThermalInfo(label="coretemp Core 0", celsius=50.0, source="cpu")
    told = Told(
        nvidia=Held(ProbeAnswer(accelerators=(warm,)), "ok", 0.0),
        sensors=Held(ProbeAnswer(thermals=(core, package)), "ok", 0.0),
    )
    snapshot = await inventory(CpuProbe("p"), prober=told).snapshot()
    card = ThermalInfo(label=f"{warm.name} GPU-a", celsius=41.0, source="gpu")
    assert snapshot.thermals == (core, package, card)
    assert [it.temperature_c for it in snapshot.accelerators] == [41, 52]
    assert "temperature" in snapshot.capabilities


@pytest.mark.anyio
async def test_unified_memory_is_the_hosts_and_only_there(tmp_path: Path) -> None:
    """TEL-1, with the figures of the case: 128 GiB, of which 100 are available."""
    gib = 1 << 30
    host = roots(
        tmp_path,
        {"proc/meminfo": f"MemTotal: {128 << 20} kB\nMemAvailable: {100 << 20} kB"},
    )
    answer = nvidia("GPU-gb10", "GPU-silent").answer
    one, other = answer.accelerators
    held = Held(
        ProbeAnswer(
            accelerators=(replace(one, unified_memory=True), other), host_memory=("GPU-gb10",)
        ),
        "ok",
        0.0,
    )
    taken = inventory(CpuProbe("p"), prober=Told(nvidia=held), roots=host)
    integrated, silent, cpu = (await taken.snapshot()).accelerators
    for device in (integrated, cpu):
        assert (device.memory_total_bytes, device.memory_used_bytes) == (128 * gib, 28 * gib)
        assert device.unified_memory
    assert (silent.memory_total_bytes, silent.memory_used_bytes) == (None, None)


@pytest.mark.anyio
async def test_the_loop_goes_on_while_devices_are_looked_at(nvml: FakeNvml) -> None:
    """Never held for 5 ms by us; a busy machine takes its own time, so the best round counts."""
    nvml.say(*(gpu(at) for at in range(8)))
    shared = inventory(CpuProbe("p"), prober=Prober(env={**os.environ, **nvml.env}), env=nvml.env)
    await shared.snapshot()
    worst = []
    for _ in range(15):
        gaps: list[float] = []

        async def beat(gaps: list[float] = gaps) -> None:
            last = time.perf_counter()
            while True:
                await anyio.lowlevel.checkpoint()
                gaps.append(time.perf_counter() - last)
                last = time.perf_counter()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat)
            assert len((await shared.snapshot(fresh=True)).accelerators) == 9
            tasks.cancel_scope.cancel()
        if len(gaps) > 10:
            worst.append(max(gaps))
    shared.close()
    assert min(worst) < 0.005, worst


class Stuck(Counting):
    """A probe whose read hangs in the kernel while its fifo has nobody at the other end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.hangs = False
        os.mkfifo(path)

    def sample(self) -> ProbeAnswer:
        super().sample()
        if self.hangs:
            self.path.read_bytes()
        return replace(ProbeAnswer(), accelerators=static("rocm").sample().accelerators)

    def let_go(self) -> None:
        self.hangs = False
        with self.path.open("wb"):
            pass


@pytest.mark.anyio
async def test_a_round_that_hangs_makes_nobody_wait_for_long_and_costs_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was known is handed out with its age; the round counts when it comes back."""
    monkeypatch.setattr(inventory_module, "ROUND_S", 0.2)
    stuck, clock = Stuck(tmp_path / "fifo"), Hands()
    shared = inventory(stuck, clock=clock)
    known = await shared.snapshot()
    stuck.hangs = True
    clock.ns += 5 * FRESH_NS
    try:
        with anyio.fail_after(5):
            old = await shared.snapshot()
        assert [it.id for it in old.accelerators] == [it.id for it in known.accelerators]
        assert [it.age_ms for it in old.accelerators] == [5_000]
        assert old.sampled_at == known.sampled_at
        assert [(it.probe, it.state) for it in old.probes] == [("host", "stale")]
        clock.ns += 60 * FRESH_NS
        before = time.monotonic()
        for _ in range(50):
            old = await shared.snapshot()
        assert time.monotonic() - before < 0.2, "who comes later does not wait again"
        with pytest.raises(DevicesUnknown):
            await shared.snapshot(fresh=True)
        assert len(stuck.threads) == 2
        assert (await shared.profile()).accelerator == "rocm"
    finally:
        stuck.let_go()
    with anyio.fail_after(5):
        while (again := await shared.snapshot()).probes:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    assert again.accelerators[0].age_ms is UNSET


@pytest.mark.anyio
async def test_where_nothing_was_ever_known_the_failure_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory_module, "FIRST_ROUND_S", 0.05)
    stuck = Stuck(tmp_path / "fifo")
    stuck.hangs = True
    shared = inventory(stuck)
    try:
        for ask in (shared.snapshot, shared.profile):
            with anyio.fail_after(5), pytest.raises(DevicesUnknown, match="have not been seen"):
                await ask()
    finally:
        stuck.let_go()
    while shared.latest is None:  # noqa: ASYNC110
        await anyio.sleep(0.01)
    assert (await shared.snapshot()).accelerators
