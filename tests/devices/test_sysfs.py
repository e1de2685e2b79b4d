"""AMD, Intel, Jetson and Apple: hosts rebuilt from the kernel's documentation of their files.

None of this hardware was at hand; the layouts are those of the kernel's documents (gpu/amdgpu/
driver-misc, ABI/testing/sysfs-driver-intel-xe-hwmon and -i915-hwmon, KFD's topology) and of tools
that read them.
"""

import os
import subprocess
import sys
import types
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from supervisor.contracts.device import AcceleratorInfo, DeviceProcess
from supervisor.devices.amd import AmdProbe
from supervisor.devices.apple import AppleProbe
from supervisor.devices.intel import IntelProbe
from supervisor.devices.nvml import NvmlProbe
from supervisor.devices.probe import Probe, ProbeAnswer
from supervisor.devices.sensors import SensorProbe, source_of
from supervisor.devices.tegra import TEGRA_DEVICE, tegra_gpu
from supervisor.devices.traces import vendors_here
from tests.devices.trees import Tree, card, roots
from tests.parts.fake_nvml import FakeNvml, gpu, uuid

GIB = 1 << 30

MI210: Tree = {
    "vendor": "0x1002",
    "device": "0x740f",
    "unique_id": "9246a6cf2c5e4dd1",
    "product_name": "AMD Instinct MI210",
    "mem_info_vram_total": str(64 * GIB),
    "mem_info_vram_used": str(3 * GIB),
    "gpu_busy_percent": "42",
    "numa_node": "1",
    "hwmon/hwmon3/name": "amdgpu",
    "hwmon/hwmon3/temp1_input": "51000",
    "hwmon/hwmon3/power1_average": "91000000",
    "hwmon/hwmon3/power1_cap": "300000000",
}
IGPU: Tree = {
    "vendor": "0x1002",
    "device": "0x150e",
    "mem_info_vram_total": str(GIB // 2),
    "mem_info_vram_used": "1000",
    "gpu_busy_percent": "3",
    "hwmon/hwmon4/temp1_input": "40000",
    "hwmon/hwmon4/power1_input": "9500000",
}


def node(at: int, gpu_id: int, **facts: int) -> dict[str, str]:
    base = f"sys/class/kfd/kfd/topology/nodes/{at}"
    lines = "\n".join(f"{key} {value}" for key, value in facts.items())
    return {f"{base}/gpu_id": str(gpu_id), f"{base}/properties": lines}


AMD_HOST: Tree = {
    **card(0, "0000:c4:00.0", IGPU, driver="amdgpu"),
    **card(1, "0000:c3:00.0", MI210, driver="amdgpu"),
    **card(2, "0000:c8:00.0", {"vendor": "0x1a03"}, driver="ast"),
    **node(0, 0, cpu_cores_count=64, location_id=0),
    **node(1, 5012, simd_count=416, location_id=0xC300, domain=0, gfx_target_version=90010),
    **node(2, 777, simd_count=32, location_id=0xC400, domain=0, gfx_target_version=110500),
    "sys/class/kfd/kfd/proc/1/vram_5012": str(2 * GIB),
    "sys/class/kfd/kfd/proc/1/vram_777": "0",
    "sys/class/kfd/kfd/proc/4194000/vram_5012": "0",
    "sys/class/kfd/kfd/proc/4194000/queues/0/gpuid": "5012",
    "proc/1/comm": "python3",
    "dev/dri/renderD129": "",
    "dev/dri/card1": "",
}


def sampled(probe: Probe) -> list[AcceleratorInfo]:
    return list(probe.sample().accelerators)


def test_amd_cards_are_known_by_their_unique_ids(tmp_path: Path) -> None:
    big, small = sampled(AmdProbe(roots(tmp_path, AMD_HOST)))
    assert (big.id, big.index, big.name) == ("amd:9246a6cf2c5e4dd1", 0, "AMD Instinct MI210")
    assert (big.vendor, big.accelerator) == ("amd", "rocm")
    assert (big.memory_total_bytes, big.memory_used_bytes) == (64 * GIB, 3 * GIB)
    assert (big.utilization_pct, big.temperature_c) == (42, 51)
    assert (big.power_watts, big.power_limit_watts) == (91, 300)
    assert big.access is not UNSET
    assert big.access.pci_address == "0000:c3:00.0"
    assert big.access.nodes == ("/dev/dri/renderD129", "/dev/dri/card1")
    assert big.access.groups == ((tmp_path / "dev/dri/card1").stat().st_gid,)
    assert big.topology is not UNSET
    assert big.topology.numa_node == 1
    assert (small.id, small.index, small.name) == ("amd:0000:c4:00.0", 1, "AMD GPU 150e")


def test_an_amd_gpu_in_the_processor_uses_the_hosts_memory(tmp_path: Path) -> None:
    """What firmware carves out as its own is not what it can use."""
    answer = AmdProbe(roots(tmp_path, AMD_HOST)).sample()
    big, small = answer.accelerators
    assert (big.unified_memory, small.unified_memory) == (False, True)
    assert (small.memory_total_bytes, small.memory_used_bytes) == (None, None)
    assert answer.host_memory == ("amd:0000:c4:00.0",)
    assert (small.power_watts, small.power_limit_watts) == (9.5, None)


def test_kfd_says_who_is_on_an_amd_card(tmp_path: Path) -> None:
    big, small = sampled(AmdProbe(roots(tmp_path, AMD_HOST)))
    assert big.processes == (
        DeviceProcess(pid=1, memory_bytes=2 * GIB, name="python3"),
        DeviceProcess(pid=4_194_000, memory_bytes=0, name=None),
    )
    assert small.processes == ()


def test_amd_cards_with_a_link_of_their_own(tmp_path: Path) -> None:
    """KFD's type 11 is XGMI, 2 is PCIe; links go by the numbers of the folders."""
    files: Tree = {"vendor": "0x1002"}
    host = roots(
        tmp_path,
        {
            **card(0, "0000:c1:00.0", files, driver="amdgpu"),
            **card(1, "0000:c2:00.0", files, driver="amdgpu"),
            **card(2, "0000:c3:00.0", files, driver="amdgpu"),
            **node(0, 0, cpu_cores_count=64),
            **node(1, 11, location_id=0xC100),
            **node(2, 12, location_id=0xC200),
            **node(3, 13, location_id=0xC300),
            "sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties": "type 2\nnode_to 0",
            "sys/class/kfd/kfd/topology/nodes/1/io_links/1/properties": "type 11\nnode_to 2",
            "sys/class/kfd/kfd/topology/nodes/2/io_links/0/properties": "type 11\nnode_to 1",
        },
    )
    links = [it.topology.links if it.topology else None for it in sampled(AmdProbe(host))]
    assert links == [{"amd:0000:c2:00.0": "nvlink"}, {"amd:0000:c1:00.0": "nvlink"}, {}]


def test_an_amd_card_without_files_is_listed_and_shifts_no_other(tmp_path: Path) -> None:
    """TEL-6: no memory file for the first; the second keeps its own numbers under its own id."""
    bare: Tree = {"vendor": "0x1002", "device": "0x6613", "gpu_busy_percent": "!"}
    full: Tree = {
        "vendor": "0x1002",
        "mem_info_vram_total": str(8 * GIB),
        "mem_info_vram_used": str(GIB),
    }
    host = roots(
        tmp_path,
        {
            **card(0, "0000:03:00.0", bare, driver="amdgpu"),
            **card(1, "0000:83:00.0", full, driver="amdgpu"),
        },
    )
    one, other = sampled(AmdProbe(host))
    assert (one.id, one.memory_total_bytes) == ("amd:0000:03:00.0", None)
    assert not one.unified_memory
    assert one.utilization_pct is None
    assert (other.id, other.memory_total_bytes) == ("amd:0000:83:00.0", 8 * GIB)
    assert other.memory_used_bytes == GIB
    assert other.processes is UNSET


def test_an_amd_card_that_cannot_compute_is_no_device(tmp_path: Path) -> None:
    host = roots(
        tmp_path,
        {
            **card(0, "0000:c3:00.0", {"vendor": "0x1002"}, driver="radeon"),
            **node(0, 0, cpu_cores_count=8),
        },
    )
    assert AmdProbe(host).sample().state == "absent"


@pytest.mark.parametrize("unique", ["", "0", "0000000000000000", "not a number"])
def test_a_card_without_an_id_goes_by_its_address(tmp_path: Path, unique: str) -> None:
    files = {**MI210, "unique_id": unique}
    [device] = sampled(AmdProbe(roots(tmp_path, card(0, "0000:c3:00.0", files, driver="amdgpu"))))
    assert device.id == "amd:0000:c3:00.0"


def test_amds_library_may_raise_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises ``KeyError`` at import where its shared object is missing."""
    library = types.ModuleType("amdsmi")
    monkeypatch.setitem(sys.modules, "amdsmi", library)

    def initialised() -> None:
        raise KeyError("libamd_smi.so")

    library.amdsmi_init = initialised  # type: ignore[attr-defined]
    assert len(sampled(AmdProbe(roots(tmp_path, AMD_HOST)))) == 2


def test_amds_library_fills_only_what_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = types.ModuleType("amdsmi")
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    answers = {
        "amdsmi_init": lambda: None,
        "amdsmi_get_processor_handles": lambda: ["a", "b"],
        "amdsmi_get_gpu_device_bdf": {"a": "0000:C3:00.0", "b": "0000:C4:00.0"}.get,
        "amdsmi_get_gpu_asic_info": lambda handle: {"market_name": "Radeon 890M"},
        "amdsmi_get_gpu_driver_info": {"a": {"driver_version": "6.16.6"}}.__getitem__,
    }
    for name, answer in answers.items():
        setattr(library, name, answer)
    big, small = sampled(AmdProbe(roots(tmp_path, AMD_HOST)))
    assert (big.name, big.driver) == ("AMD Instinct MI210", "6.16.6")
    assert (small.name, small.driver) == ("Radeon 890M", None)


INTEL_HOST: Tree = {
    **card(
        0,
        "0000:00:02.0",
        {"vendor": "0x8086", "device": "0x4680", "hwmon/hwmon1/temp1_input": "45000"},
        driver="i915",
    ),
    **card(
        1,
        "0000:03:00.0",
        {
            "vendor": "0x8086",
            "device": "0xe20b",
            "tile0/physical_vram_size_bytes": "0x300000000",
            "hwmon/hwmon2/name": "xe",
            "hwmon/hwmon2/temp2_input": "38000",
            "hwmon/hwmon2/power1_max": "190000000",
            "numa_node": "-1",
        },
        driver="xe",
    ),
    **card(2, "0000:04:00.0", {"vendor": "0x8086"}, driver="vfio-pci"),
    "usr/share/misc/pci.ids": "\n".join(
        ("# ids", "8086  Intel Corporation", "\te20b  Battlemage G21 [Arc B580]", "8087  Other")
    ),
}


def test_intel_under_both_drivers(tmp_path: Path) -> None:
    answer = IntelProbe(roots(tmp_path, INTEL_HOST)).sample()
    processors, card_ = answer.accelerators
    assert (processors.id, processors.name) == ("intel:0000:00:02.0", "Intel GPU 4680")
    assert (processors.unified_memory, processors.driver) == (True, "i915")
    assert answer.host_memory == ("intel:0000:00:02.0",)
    assert (card_.id, card_.name) == ("intel:0000:03:00.0", "Battlemage G21 [Arc B580]")
    assert (card_.accelerator, card_.driver) == ("xpu", "xe")
    assert (card_.memory_total_bytes, card_.memory_used_bytes) == (12 * GIB, None)
    assert (card_.temperature_c, card_.power_watts, card_.power_limit_watts) == (38, None, 190)
    assert card_.utilization_pct is None
    assert card_.processes is UNSET
    assert card_.topology is not UNSET
    assert card_.topology.numa_node is None
    assert answer.capabilities == ("memory", "power", "temperature")


JETSON: Tree = {
    "proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0000\0nvidia,tegra234",
    "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
    "sys/devices/platform/bus@0/17000000.gpu/load": "473",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
    "sys/class/thermal/thermal_zone0/temp": "48000",
    "sys/class/thermal/thermal_zone1/type": "gpu-thermal",
    "sys/class/thermal/thermal_zone1/temp": "45500",
}


def test_a_jetson_without_nvml(tmp_path: Path) -> None:
    """TEL-6: load in thousandths, its own zone's temperature, the host's memory."""
    device = tegra_gpu(roots(tmp_path, JETSON))
    assert device is not None
    assert (device.id, device.name) == (TEGRA_DEVICE, "NVIDIA Jetson AGX Orin Developer Kit")
    assert (device.utilization_pct, device.temperature_c) == (47.3, 45.5)
    assert (device.accelerator, device.unified_memory) == ("cuda", True)
    assert device.memory_total_bytes is None
    assert vendors_here(roots(tmp_path / "other"), {}) == []
    assert vendors_here(roots(tmp_path), {}) == ["nvidia", "sensors"]


def test_a_jetson_whose_library_says_success_with_zeros(nvml: FakeNvml, tmp_path: Path) -> None:
    """What the kernel shows is taken where the library has no real value."""
    nvml.say(gpu(0, name="Orin_(nvgpu)", cc="8.7", mem=2, util=0, temp=0))
    host = roots(tmp_path, JETSON)
    script = (
        "import sys, msgspec; from pathlib import Path; "
        "from supervisor.devices.nvml import NvmlProbe; "
        "from supervisor.devices.roots import Roots; base = Path(sys.argv[1]); "
        "probe = NvmlProbe(Roots(sys=base / 'sys', proc=base / 'proc')); "
        "sys.stdout.buffer.write(msgspec.json.encode(probe.sample()))"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, str(host.sys.parent)],
        env={**os.environ, **nvml.env},
        capture_output=True,
        check=True,
        timeout=30,
    )
    answer = msgspec.json.decode(told.stdout, type=ProbeAnswer)
    [device] = answer.accelerators
    assert device.id == uuid(0)
    assert (device.utilization_pct, device.temperature_c) == (47.3, 45.5)
    assert answer.host_memory == (uuid(0),)


def test_nvml_that_is_missing_leaves_a_jetsons_gpu(tmp_path: Path) -> None:
    answer = NvmlProbe(roots(tmp_path, JETSON)).sample()
    assert [it.id for it in answer.accelerators] == [TEGRA_DEVICE]
    assert answer.state == "ok"


@pytest.mark.parametrize(
    ("system", "machine", "devices"),
    [
        ("darwin", "arm64", ["metal:0"]),
        ("darwin", "x86_64", []),
        ("linux", "arm64", []),
    ],
)
def test_apple(system: str, machine: str, devices: list[str]) -> None:
    probe = AppleProbe(system=system, machine=machine, sysctl=lambda name: "Apple M3 Ultra")
    answer = probe.sample()
    assert [it.id for it in answer.accelerators] == devices
    assert answer.host_memory == tuple(devices)
    for device in answer.accelerators:
        assert (device.name, device.vendor) == ("Apple M3 Ultra", "apple")
        assert (device.accelerator, device.unified_memory) == ("metal", True)


SENSORS: Tree = {
    "sys/class/hwmon/hwmon0/name": "coretemp",
    "sys/class/hwmon/hwmon0/temp1_input": "52000",
    "sys/class/hwmon/hwmon0/temp1_label": "Package id 0",
    "sys/class/hwmon/hwmon1/name": "amdgpu",
    "sys/class/hwmon/hwmon1/temp1_input": "47000",
    "sys/class/hwmon/hwmon1/temp1_label": "edge",
    "sys/class/hwmon/hwmon2/name": "nvme",
    "sys/class/hwmon/hwmon2/temp1_input": "38850",
    "sys/class/hwmon/hwmon2/temp2_input": "!",
    "sys/class/hwmon/hwmon3/name": "nct6798",
    "sys/class/hwmon/hwmon3/temp3_input": "-128000",
    "sys/class/hwmon/hwmon10/name": "acpitz",
    "sys/class/hwmon/hwmon10/temp1_input": "27800",
    "sys/class/thermal/thermal_zone0/type": "acpitz",
    "sys/class/thermal/thermal_zone0/temp": "27800",
    "sys/class/thermal/thermal_zone0/hwmon10/name": "acpitz",
    "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp",
    "sys/class/thermal/thermal_zone1/temp": "53000",
}


def test_every_temperature_has_its_source(tmp_path: Path) -> None:
    found = SensorProbe(roots(tmp_path, SENSORS)).sample().thermals
    assert [(it.label, it.celsius, it.source) for it in found] == [
        ("coretemp Package id 0", 52, "cpu"),
        ("amdgpu edge", 47, "gpu"),
        ("nvme temp1", 38.85, "chassis"),
        ("acpitz temp1", 27.8, "chassis"),
        ("x86_pkg_temp", 53, "cpu"),
    ]


@pytest.mark.parametrize(
    ("name", "source"),
    [("k10temp", "cpu"), ("xe", "gpu"), ("GPU-therm", "gpu"), ("iwlwifi_1", "chassis")],
)
def test_a_source_is_told_by_the_driver(name: str, source: str) -> None:
    assert source_of(name) == source


def test_a_host_with_nothing_needs_no_probe_process(tmp_path: Path) -> None:
    assert vendors_here(roots(tmp_path), {}) == []
    assert vendors_here(roots(tmp_path, AMD_HOST), {}) == ["amd"]
    assert vendors_here(roots(tmp_path / "i", INTEL_HOST), {}) == ["intel"]
    assert vendors_here(roots(tmp_path / "s", SENSORS), {}) == ["sensors"]
