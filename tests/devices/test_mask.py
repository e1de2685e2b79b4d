"""GPU-4: the daemon never offers a device outside its own mask."""

from collections.abc import Mapping

import pytest

from supervisor.contracts.device import AcceleratorInfo, DeviceAccess, DeviceVendor
from supervisor.contracts.host import Accelerator
from supervisor.devices.mask import visible
from tests.parts.fake_nvml import uuid

VENDORS: Mapping[Accelerator, DeviceVendor] = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel"}


def device(name: str, kind: Accelerator = "cuda", parent: str | None = None) -> AcceleratorInfo:
    return AcceleratorInfo(
        id=name,
        index=0,
        vendor=VENDORS[kind],
        name="a card",
        accelerator=kind,
        memory_total_bytes=None,
        memory_used_bytes=None,
        unified_memory=False,
        utilization_pct=None,
        temperature_c=None,
        power_watts=None,
        power_limit_watts=None,
        driver=None,
        access=DeviceAccess(parent=parent),
    )


EIGHT = [device(uuid(at)) for at in range(8)]
SLICED = [device("GPU-0a"), device("MIG-a", parent="GPU-0a"), device("GPU-0b")]
AMD = [device(f"amd:{at}46a6cf2c5e4dd1", "rocm") for at in range(3)]
INTEL = [device(f"intel:0000:0{at}:00.0", "xpu") for at in range(3)]


@pytest.mark.parametrize(
    ("mask", "shown"),
    [
        ("4,5", [4, 5]),
        ("5,4", [4, 5]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,-1,1", [0]),  # CUDA ends the list at the first entry that names nothing
        ("0,9,1", [0]),
        (uuid(6), [6]),
        (f"{uuid(6)[:12]},2", [2, 6]),
        ("GPU-0", []),  # ambiguous
        (uuid(3).upper(), [3]),
    ],
)
def test_cudas_mask(mask: str, shown: list[int]) -> None:
    found = visible(EIGHT, {"CUDA_VISIBLE_DEVICES": mask})
    assert [it.id for it in found] == [uuid(at) for at in shown]


@pytest.mark.parametrize(
    ("mask", "shown"),
    [
        ("0", ["GPU-0a", "MIG-a"]),  # the slices go with their whole
        ("1", ["GPU-0b"]),  # and have no numbers of their own
        ("MIG-a", ["MIG-a"]),
        ("GPU-0b", ["GPU-0b"]),
    ],
)
def test_slices_in_a_mask(mask: str, shown: list[str]) -> None:
    found = visible(SLICED, {"CUDA_VISIBLE_DEVICES": mask})
    assert [it.id for it in found] == shown


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1,2"}, [1, 2]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00246a6cf2c5e4dd1"[:4] + "00246a6cf2c5e4dd1"[-16:]}, [2]),
        # HIP numbers what ROCr has left, and CUDA's variable is HIP's where its own is not set.
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, [0]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_amds_masks(env: dict[str, str], shown: list[int]) -> None:
    assert visible(AMD, env) == [AMD[at] for at in shown]


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ({"ZE_AFFINITY_MASK": "0,2.1"}, [0, 2]),
        ({"ZE_AFFINITY_MASK": ""}, [0, 1, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "level_zero:1"}, [1]),
        ({"ONEAPI_DEVICE_SELECTOR": "opencl:0;level_zero:0,2"}, [0, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "*:gpu"}, [0, 1, 2]),
        ({"ONEAPI_DEVICE_SELECTOR": "*:cpu"}, []),
        ({"ONEAPI_DEVICE_SELECTOR": "!level_zero:0"}, []),  # not understood: nothing is offered
    ],
)
def test_intels_masks(env: dict[str, str], shown: list[int]) -> None:
    assert visible(INTEL, env) == [INTEL[at] for at in shown]


def test_a_mask_of_one_vendor_hides_none_of_anothers() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0,1,2"}
    assert visible([*EIGHT[:2], *AMD, *INTEL], env) == [EIGHT[0], *AMD, *INTEL]
    assert visible(EIGHT, {}) == EIGHT
    assert visible(EIGHT, {"NVIDIA_VISIBLE_DEVICES": "3"}) == EIGHT
