"""The one place that turns a lease into variables, and what a launch may not say beside it."""

from collections.abc import Mapping

import pytest
from msgspec import UNSET

from supervisor.contracts.device import DeviceAccess
from supervisor.contracts.engine import DeviceRequest, EngineRuntimeKind, LaunchPlan, Mount
from supervisor.contracts.host import Accelerator
from supervisor.engines.devices import DEVICE_VARIABLES, apply_devices
from supervisor.engines.llamacpp import SPEC
from supervisor.engines.picking import lease_violation
from tests.engines.requests import ACCELERATORS, ACCESS, GPU_A, GPU_B, request

NOTHING = {
    "CUDA_VISIBLE_DEVICES": "",
    "ROCR_VISIBLE_DEVICES": "",
    "GGML_VK_VISIBLE_DEVICES": "",
    "ONEAPI_DEVICE_SELECTOR": "*:cpu",
    "LLAMA_ARG_DEVICE": "none",
}


def applied(
    *devices: str, runtime: EngineRuntimeKind = "process", env: dict[str, str] | None = None
) -> dict[str, str]:
    launch = request(devices=devices, runtime=runtime, env=env or {})
    return apply_devices(SPEC.plan(launch), ACCELERATORS, ACCESS).env


@pytest.mark.parametrize(
    ("devices", "env"),
    [
        ([GPU_A], {"CUDA_VISIBLE_DEVICES": GPU_A, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        (
            [GPU_B, GPU_A],
            {"CUDA_VISIBLE_DEVICES": f"{GPU_B},{GPU_A}", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        ),
        (["amd:1a2b3c4d5e6f7081"], {"ROCR_VISIBLE_DEVICES": "GPU-1a2b3c4d5e6f7081"}),
        (["amd:0000:c3:00.0"], {"ROCR_VISIBLE_DEVICES": "1"}),
        (
            ["intel:0000:83:00.0", "intel:0000:03:00.0"],
            {
                "ZE_AFFINITY_MASK": "0,1",
                "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
                "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
            },
        ),
        (["metal:0"], {}),
        (["cpu:0"], NOTHING),
        ([], NOTHING),
        (["cpu:0", GPU_A], {"CUDA_VISIBLE_DEVICES": GPU_A, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    ],
)
def test_a_process_sees_its_lease_and_nothing_else(devices: list[str], env: dict[str, str]) -> None:
    assert applied(*devices) == env


@pytest.mark.parametrize(
    ("devices", "env"),
    [
        ([GPU_A], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        (["amd:1a2b3c4d5e6f7081"], {"NVIDIA_VISIBLE_DEVICES": "void"}),
        (["cpu:0"], {"NVIDIA_VISIBLE_DEVICES": "void"}),
    ],
)
def test_a_container_numbers_devices_anew(devices: list[str], env: dict[str, str]) -> None:
    assert applied(*devices, runtime="docker") == env


@pytest.mark.parametrize(
    ("kind", "device", "variable", "number"),
    [
        ("xpu", "intel:0000:83:00.0", "ZE_AFFINITY_MASK", "3"),
        ("rocm", "amd:0000:c3:00.0", "ROCR_VISIBLE_DEVICES", "3"),
        ("cuda", "tegra:0", "CUDA_VISIBLE_DEVICES", "0"),
    ],
)
def test_a_number_counts_devices_that_a_mask_of_the_daemons_own_hides(
    kind: Accelerator, device: str, variable: str, number: str
) -> None:
    """GPU-4: else the engine would be given somebody else's."""
    plan = SPEC.plan(request(devices=(device,)))
    env = apply_devices(plan, {device: kind}, {device: DeviceAccess(place=3)}).env
    assert env[variable] == number


MIG = "MIG-33333333-3333-3333-3333-333333333333"


def container(*devices: str, access: Mapping[str, DeviceAccess] = ACCESS) -> LaunchPlan:
    launch = request(devices=devices, runtime="docker")
    return apply_devices(SPEC.plan(launch), ACCELERATORS, access)


def test_a_container_asks_for_its_devices_by_id_and_without_a_count() -> None:
    assert container("cpu:0").device_requests is UNSET
    for devices in ((GPU_B,), (GPU_B, GPU_A), (MIG,)):
        plan = container(*devices)
        assert plan.device_requests == (
            DeviceRequest(driver="", device_ids=devices, capabilities=(("gpu",),)),
        )
        assert (plan.device_nodes, plan.security_opts, plan.groups) == (UNSET, UNSET, UNSET)


def test_a_container_takes_cdi_names_where_all_devices_have_one() -> None:
    named = {gpu: DeviceAccess(cdi=f"nvidia.com/gpu={gpu}") for gpu in (GPU_A, GPU_B)}
    plan = container(GPU_B, GPU_A, access=named)
    names = (f"nvidia.com/gpu={GPU_B}", f"nvidia.com/gpu={GPU_A}")
    assert plan.device_requests == (DeviceRequest(driver="cdi", device_ids=names),)
    assert plan.env["NVIDIA_VISIBLE_DEVICES"] == "void", "or docker's default runtime adds all"
    (half,) = container(GPU_B, GPU_A, access={GPU_A: named[GPU_A]}).device_requests or ()
    assert half.driver == ""


def test_a_container_gets_an_amd_devices_own_files_with_numeric_groups() -> None:
    plan = container("amd:1a2b3c4d5e6f7081")
    assert plan.device_nodes == ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/card1")
    assert plan.groups == (44, 992)
    assert plan.security_opts == ("seccomp=unconfined",)
    assert "ROCR_VISIBLE_DEVICES" not in plan.env, "what is passed in is numbered anew"


def test_where_a_devices_files_are_unknown_all_go_in_behind_a_mask() -> None:
    plan = container("amd:1a2b3c4d5e6f7081", access={})
    assert plan.device_nodes == ("/dev/kfd", "/dev/dri")
    assert plan.env["ROCR_VISIBLE_DEVICES"] == "GPU-1a2b3c4d5e6f7081"
    plan = container("intel:0000:03:00.0")
    assert plan.device_nodes == ("/dev/dri",)
    assert plan.env["ZE_AFFINITY_MASK"] == "0"


def test_a_container_gets_an_intel_cards_files_and_its_place_on_the_bus() -> None:
    plan = container("intel:0000:83:00.0")
    assert plan.device_nodes == ("/dev/dri/renderD129", "/dev/dri/card2")
    assert plan.mounts[-1] == Mount(from_="/dev/dri/by-path", to="/dev/dri/by-path", read_only=True)
    assert "ZE_AFFINITY_MASK" not in plan.env


def test_the_order_of_enumeration_changes_nothing() -> None:
    """GPU-1."""
    plan = SPEC.plan(request(devices=[GPU_A]))
    turned = dict(reversed(list(ACCELERATORS.items())))
    assert apply_devices(plan, turned, ACCESS) == apply_devices(plan, ACCELERATORS, ACCESS)


def test_masks_of_any_vendor_never_survive() -> None:
    stale = dict.fromkeys(DEVICE_VARIABLES, "4,5") | {"KEPT": "yes"}
    assert applied(GPU_A, env=stale) == {
        "KEPT": "yes",
        "CUDA_VISIBLE_DEVICES": GPU_A,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_a_launch_may_choose_the_order_and_narrow_its_mask() -> None:
    """GPU-1."""
    own = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "CUDA_VISIBLE_DEVICES": GPU_B}
    assert applied(GPU_A, GPU_B, env=own) == own


def test_a_static_device_may_have_any_id() -> None:
    plan = SPEC.plan(request(devices=["lab-1"]))
    env = apply_devices(plan, {"lab-1": "cuda"}).env
    assert env["CUDA_VISIBLE_DEVICES"] == "lab-1"
    assert apply_devices(plan, {"lab-1": "rocm"}).env == {"ROCR_VISIBLE_DEVICES": "lab-1"}


def test_nothing_but_the_environment_changes() -> None:
    plan = SPEC.plan(request())
    after = apply_devices(plan, ACCELERATORS)
    assert (after.argv, after.devices, after.ports) == (plan.argv, plan.devices, plan.ports)
    assert plan.env == {}, "the plan that it got is left alone"


@pytest.mark.parametrize(
    ("extra_args", "env"),
    [
        ([], {"CUDA_VISIBLE_DEVICES": "0"}),
        ([], {"CUDA_VISIBLE_DEVICES": f"{GPU_A},GPU-3"}),
        ([], {"CUDA_VISIBLE_DEVICES": "GPU-1111"}),
        ([], {"NVIDIA_VISIBLE_DEVICES": "all"}),
        ([], {"HIP_VISIBLE_DEVICES": "0"}),
        ([], {"LLAMA_ARG_DEVICE": "CUDA2"}),
        ([], {"LLAMA_ARG_MAIN_GPU": "2"}),
        (["-dev", "CUDA2"], {}),
        (["--device", "CUDA0,CUDA2"], {}),
        (["--device=Vulkan0"], {}),
        (["--device Vulkan0"], {}),
        (["-mg", "2"], {}),
        (["--main_gpu=7"], {}),
        (["--base-gpu-id", "2"], {}),
        (["--device-ids", "0"], {}),
        (["--device-ids", f"{GPU_A},GPU-3"], {}),
        (["--device-i=0"], {}),
        (["--base-gpu", "2"], {}),
        (["-ts", "1,1,1"], {}),
        (["--tensor-split", "3/1/1"], {}),
        ([], {"GGML_VK_VISIBLE_DEVICES": "0"}),
        ([], {"HABANA_VISIBLE_DEVICES": "0"}),
    ],
)
def test_leaving_the_lease_is_said_in_a_sentence(
    extra_args: list[str], env: dict[str, str]
) -> None:
    sentence = lease_violation(extra_args, env, [GPU_A, GPU_B], ACCELERATORS)
    assert sentence is not None
    assert GPU_A in sentence
    assert "devices" in sentence


@pytest.mark.parametrize(
    ("extra_args", "env"),
    [
        ([], {}),
        ([], {"CUDA_VISIBLE_DEVICES": f"{GPU_B},{GPU_A}", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}),
        ([], {"LLAMA_ARG_DEVICE": "CUDA1"}),
        (["-dev", "CUDA1,CUDA0", "-mg", "1"], {}),
        (["-dev", "none"], {}),
        (["--device", "cuda"], {}),
        (["--device", "cuda:1"], {}),
        (["--device-ids", GPU_A], {}),
        (["--alias", "device"], {"SOME_DEVICE": "7"}),
        (["-ts", "3,1"], {}),
        (["--mmproj", "/models/mmproj.gguf"], {}),
    ],
)
def test_picking_among_leased_devices_is_free(extra_args: list[str], env: dict[str, str]) -> None:
    assert lease_violation(extra_args, env, [GPU_A, GPU_B], ACCELERATORS) is None


def test_a_cpu_lease_reaches_no_gpu() -> None:
    for extra_args, env in (
        (["-dev", "CUDA0"], {}),
        ([], {"CUDA_VISIBLE_DEVICES": "0"}),
        ([], {"GGML_VK_VISIBLE_DEVICES": "0"}),
        ([], {"LLAMA_ARG_DEVICE": "MTL0"}),
    ):
        assert lease_violation(extra_args, env, ["cpu:0"], ACCELERATORS)
    assert lease_violation(["-dev", "none", "-mg", "0"], {}, ["cpu:0"], ACCELERATORS) is None
