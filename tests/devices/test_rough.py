"""No file and no library can make a probe raise, or say what cannot be true."""

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from supervisor.contracts.device import AcceleratorInfo
from supervisor.devices import prober
from supervisor.devices.amd import AmdProbe
from supervisor.devices.host import host_memory
from supervisor.devices.intel import IntelProbe
from supervisor.devices.limits import cpu_limit
from supervisor.devices.nvml import NvmlProbe
from supervisor.devices.probe import ProbeAnswer
from supervisor.devices.sensors import SensorProbe
from supervisor.devices.traces import vendors_here
from supervisor.devices.volumes import sample_volumes
from tests.devices.probing import Ask
from tests.devices.test_host import IN_V1, IN_V2, MEMINFO, MOUNTS
from tests.devices.test_sysfs import AMD_HOST, INTEL_HOST, JETSON, SENSORS
from tests.devices.trees import roots
from tests.parts.fake_nvml import FakeNvml, gpu, uuid

TREE = {**AMD_HOST, **JETSON, **SENSORS, **MEMINFO, **IN_V2, **IN_V1, **MOUNTS}
TREE |= {name: held for name, held in INTEL_HOST.items() if name not in AMD_HOST}
FILES = sorted(name for name, held in TREE.items() if not held.startswith("-> "))

ROUGH = st.one_of(
    st.sampled_from(["", "0", "-1", "!", "nan", "1e400", "0x", "4294967295", "max", "a b\nc:d 7"]),
    st.integers().map(str),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
)


def plausible(devices: tuple[AcceleratorInfo, ...]) -> None:
    assert len({it.id for it in devices}) == len(devices)
    for it in devices:
        total, used = it.memory_total_bytes, it.memory_used_bytes
        assert total is None or total > 0
        assert used is None or 0 <= used <= (total or 0)
        assert it.utilization_pct is None or 0 <= it.utilization_pct <= 100
        for reading in (it.temperature_c, it.power_watts, it.power_limit_watts):
            assert reading is None or math.isfinite(reading)


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.generate], derandomize=True)
@given(rough=st.dictionaries(st.sampled_from(FILES), ROUGH, min_size=1, max_size=12))
def test_whatever_the_kernels_files_hold(rough: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = roots(Path(folder), {**TREE, **rough})
        for probe in (AmdProbe, IntelProbe, SensorProbe, NvmlProbe):
            answer: ProbeAnswer = probe(host).sample()
            plausible(answer.accelerators)
            assert all(-40 <= it.celsius <= 150 for it in answer.thermals)
        memory = host_memory(host, {0, 1})
        assert 0 <= memory.available <= memory.total
        assert (cpu_limit(host) or 1) > 0
        sample_volumes([folder, "/x"], host)
        vendors_here(host, {})


FUNCTIONS = (
    "nvmlInit",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
)
# Not supported, no permission, driver not loaded, lost, version mismatch, not ready, unknown.
CODES = (3, 4, 9, 15, 18, 27, 999)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_whatever_nvml_answers(
    nvml: FakeNvml, ask: Ask, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call fails, in each way, on one of two cards: an answer all the same, or a reason."""
    monkeypatch.setattr(prober, "RETRY_S", 0.0)
    host = (gpu(0, mig=1), gpu(1), "mig gpu=0 uuid=MIG-a total=1", "proc gpu=0 pid=1 used=1")
    for code in CODES:
        nvml.say(*host, f"fail {function} {code} 1")
        held = ask()
        plausible(held.answer.accelerators)
        trouble = str(held.answer.reason)
        assert "Error:" not in trouble, "the probe itself raised"
        if held.state == "ok":
            shown = [it.id for it in held.answer.accelerators]
            assert shown in ([uuid(0), "MIG-a", uuid(1)], [uuid(0), "MIG-a"])
        nvml.say(*host)
        ask.until("ok")
