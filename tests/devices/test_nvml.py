"""NVIDIA's devices through the real binding: every field alone, and every way to fail."""

import pytest
from msgspec import UNSET

from supervisor.contracts.device import DeviceAccess, DeviceProcess
from supervisor.devices import prober
from tests.devices.probing import Ask, probes
from tests.parts.fake_nvml import MIB, FakeNvml, gpu, uuid


def test_eight_healthy_gpus(nvml: FakeNvml, ask: Ask) -> None:
    nvml.say(
        "driver 580.95.05",
        *(
            gpu(at, used=1_000 + at, reserved=600, util=37, temp=41, power=123_456)
            for at in range(8)
        ),
        "nvlink 0 1",
        "link 0 2 20",
        "link 0 3 40",
    )
    devices = ask.devices()
    assert [it.id for it in devices] == [uuid(at) for at in range(8)]
    assert [it.index for it in devices] == list(range(8))
    third = devices[2]
    assert (third.vendor, third.accelerator, third.name) == ("nvidia", "cuda", "NVIDIA H200")
    # NVML's second version keeps what the driver reserves out of what is used.
    assert third.memory_total_bytes == 143_771 * MIB
    assert third.memory_used_bytes == 1_002 * MIB
    assert (third.utilization_pct, third.temperature_c) == (37, 41)
    assert (third.power_watts, third.power_limit_watts) == (123.456, 700)
    assert third.driver == "580.95.05"
    assert not third.unified_memory
    assert third.access == DeviceAccess(pci_address="0000:1d:00.0", nodes=("/dev/nvidia2",))
    assert third.processes == ()
    links = devices[0].topology
    assert links is not UNSET
    assert [links.links[uuid(at)] for at in (1, 2, 3, 4)] == ["nvlink", "switch", "node", "system"]
    assert ask().answer.capabilities == ("memory", "power", "temperature", "utilization")


def test_mig_slices_are_devices_of_their_own(nvml: FakeNvml, ask: Ask) -> None:
    nvml.say(
        gpu(0, mig=1),
        gpu(1),
        "mig gpu=0 uuid=MIG-a name=NVIDIA_H200_MIG_3g.71gb total=71000 used=10",
        "mig gpu=0 uuid=MIG-b name=NVIDIA_H200_MIG_1g.18gb total=18000 used=20",
    )
    whole, one, two, other = ask.devices()
    assert [it.id for it in (whole, one, two, other)] == [uuid(0), "MIG-a", "MIG-b", uuid(1)]
    assert one.memory_total_bytes == 71_000 * MIB
    assert two.memory_used_bytes == 20 * MIB
    for part in (one, two):
        assert part.access is not UNSET
        assert part.access.parent == uuid(0)
        assert part.access.pci_address == "0000:1b:00.0"
        # A slice has no sensors of its own, and its parent's are not made into them.
        assert (part.utilization_pct, part.temperature_c, part.power_watts) == (None, None, None)
    assert whole.access is not UNSET
    assert whole.access.parent is None


def test_the_processes_on_a_device(nvml: FakeNvml, ask: Ask) -> None:
    nvml.say(
        gpu(0),
        gpu(1),
        "proc gpu=1 pid=1 used=19000",
        "proc gpu=1 pid=4193999 used=-1",
        "proc gpu=1 pid=1 used=19000 kind=graphics",
        "proc gpu=1 pid=4194001 used=5 kind=graphics",
    )
    free, taken = ask.devices()
    assert free.processes == ()
    assert taken.processes is not UNSET
    init, silent, drawing = taken.processes
    assert (init.pid, init.memory_bytes, init.graphics_only) == (1, 19_000 * MIB, False)
    assert init.name is not None
    assert silent == DeviceProcess(pid=4_193_999, memory_bytes=None, name=None)
    assert (drawing.pid, drawing.graphics_only) == (4_194_001, True)


@pytest.mark.parametrize(
    ("facts", "on_host"),
    [
        ({"name": "NVIDIA_GB10", "cc": "12.1", "mem": 0}, True),
        ({"name": "NVIDIA_GB10", "cc": "12.1", "mem": 2}, True),
        ({"name": "Orin_(nvgpu)", "cc": "8.7", "mem": 0}, True),
        ({"name": "NVIDIA_H200", "mem": 0}, False),
        ({"name": "NVIDIA_H200", "mem": 2}, False),
    ],
)
def test_only_a_known_integrated_device_uses_the_hosts_memory(
    nvml: FakeNvml, ask: Ask, facts: dict[str, str | int], on_host: bool
) -> None:
    """TEL-1: "not supported" on a discrete card is not known, and no zero."""
    nvml.say(gpu(0, **facts))
    [device] = ask.devices()
    assert device.unified_memory == on_host
    assert (device.memory_total_bytes, device.memory_used_bytes) == (None, None)
    assert ask().answer.host_memory == ((uuid(0),) if on_host else ())
    assert ("memory" in ask().answer.capabilities) == on_host


def test_memory_that_fails_on_an_integrated_device_is_not_known(nvml: FakeNvml, ask: Ask) -> None:
    nvml.say(gpu(0, name="NVIDIA_GB10", cc="12.1"), "fail nvmlDeviceGetMemoryInfo 999")
    [device] = ask.devices()
    assert device.unified_memory
    assert ask().answer.host_memory == ()


def test_memory_that_is_a_numa_node_too_is_said(nvml: FakeNvml, ask: Ask) -> None:
    nvml.say(gpu(0, name="NVIDIA_GH200_480GB", numa=2))
    assert ask.devices()[0].memory_total_bytes == 143_771 * MIB
    assert ask().answer.memory_nodes == (2,)


def test_each_field_fails_alone(nvml: FakeNvml, ask: Ask) -> None:
    """TEL-2, as under WSL: a null for each, and all else as it is."""
    nvml.say(
        gpu(0, limit=-1, util=101, temp=200, power=4_294_967_295),
        "fail nvmlDeviceGetComputeRunningProcesses 3",
        "fail nvmlDeviceGetGraphicsRunningProcesses 3",
        "fail nvmlDeviceGetPciInfo 999",
        "fail nvmlDeviceGetMinorNumber 3",
        "fail nvmlSystemGetDriverVersion 999",
    )
    [device] = ask.devices()
    assert device.memory_total_bytes == 143_771 * MIB
    assert (device.utilization_pct, device.temperature_c) == (None, None)
    assert (device.power_watts, device.power_limit_watts) == (None, None)
    assert device.processes is UNSET
    assert device.driver is None
    assert device.access == DeviceAccess()
    assert ask().answer.capabilities == ("memory",)


@pytest.mark.parametrize("function", ["*", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPowerUsage"])
def test_a_lost_gpu_does_not_hide_the_others(nvml: FakeNvml, ask: Ask, function: str) -> None:
    nvml.say(gpu(0), gpu(1), gpu(2), f"fail {function} 15 1")
    assert [it.id for it in ask.devices()] == [uuid(0), uuid(2)]
    [lost] = ask().answer.lost
    assert lost.startswith("GPU 1")
    assert "is lost" in lost


def test_a_gpu_that_was_lost_is_looked_for_anew(
    nvml: FakeNvml, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library knows the devices that there were when it was opened."""
    monkeypatch.setattr(prober, "RENEW_S", 0.0)
    nvml.say(gpu(0), gpu(1), "fail * 15 1")
    assert len(ask.devices()) == 1
    assert probes() == []
    nvml.say(gpu(0), gpu(1))
    assert len(ask.devices()) == 2


def test_no_library_is_no_nvidia_host() -> None:
    ask = Ask({"LD_LIBRARY_PATH": "/nowhere"})
    held = ask()
    ask.close()
    assert held.state == "absent"
    assert "Not Found" in str(held.answer.reason)
    assert held.answer.expects is UNSET


def test_a_driver_mismatch_is_said_and_tried_again(
    nvml: FakeNvml, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TEL-2: the devices appear when the driver can be asked, without a restart."""
    monkeypatch.setattr(prober, "RETRY_S", 0.2)
    nvml.say("init 18")
    held = ask()
    assert (held.state, held.answer.accelerators) == ("failed", ())
    assert str(held.answer.reason).startswith("NVML: ")
    assert held.answer.expects == "cuda"
    assert ask().state == "failed"
    nvml.say(gpu(0))
    assert len(ask.until("ok").answer.accelerators) == 1


def test_devices_stay_when_their_driver_cannot_be_asked_any_more(
    nvml: FakeNvml, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prober, "RETRY_S", 0.2)
    nvml.say(gpu(0))
    ask.devices()
    nvml.say(gpu(0), "fail nvmlDeviceGetCount 18")
    held = ask()
    assert held.state == "stale"
    assert [it.id for it in held.answer.accelerators] == [uuid(0)]
    nvml.say(gpu(0), gpu(1))
    ask.until("ok")
    assert len(ask.devices()) == 2
