"""Numbers in place of ids, for engine versions that read nothing else."""

import pytest
from msgspec import UNSET

from supervisor.contracts.device import AcceleratorInfo, DeviceAccess
from supervisor.engines.devices import apply_devices
from supervisor.engines.places import is_older, mask_by_places, pci_places
from supervisor.engines.vllm import SPEC
from tests.engines.requests import ACCELERATORS, GPU_A, GPU_B, request

C = "GPU-cccccccc-cccc-cccc-cccc-cccccccccccc"
SLICE = "MIG-33333333-3333-3333-3333-333333333333"


def card(
    name: str, address: str | None = None, *, parent: str | None = None, known: bool = True
) -> AcceleratorInfo:
    return AcceleratorInfo(
        id=name,
        index=0,
        vendor="nvidia",
        name="card",
        accelerator="cuda",
        memory_total_bytes=None,
        memory_used_bytes=None,
        unified_memory=False,
        utilization_pct=None,
        temperature_c=None,
        power_watts=None,
        power_limit_watts=None,
        driver=None,
        access=DeviceAccess(pci_address=address, parent=parent) if known else UNSET,
    )


def test_places_follow_the_bus() -> None:
    cards = [card(GPU_A, "0000:c3:00.0"), card(GPU_B, "0000:03:00.0"), card(C, "0001:01:00.0")]
    assert pci_places(cards) == {GPU_B: 0, GPU_A: 1, C: 2}
    whole = [*cards, card(SLICE, "0000:03:00.0", parent=GPU_B)]
    assert pci_places(whole) == {GPU_B: 0, GPU_A: 1, C: 2}


@pytest.mark.parametrize(
    "odd", [card(C), card(C, known=False), card(SLICE, "0000:04:00.0", parent="GPU-unseen")]
)
def test_a_card_without_an_address_could_shift_the_rest(odd: AcceleratorInfo) -> None:
    assert pci_places([card(GPU_A, "0000:c3:00.0"), odd]) == {}


def test_a_mask_of_numbers() -> None:
    launch = request(engine="vllm", modelPath="/m", devices=[GPU_B, GPU_A])
    plan = apply_devices(SPEC.plan(launch), ACCELERATORS)
    numbered = mask_by_places(plan, {GPU_B: 0, GPU_A: 1})
    assert numbered.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert numbered.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert numbered.devices == plan.devices
    assert mask_by_places(plan, {GPU_B: 0}) == plan
    assert mask_by_places(plan, {}) == plan


def test_no_mask_no_numbers() -> None:
    launch = request(engine="vllm", modelPath="/m", devices=["cpu:0"])
    plan = apply_devices(SPEC.plan(launch), ACCELERATORS)
    assert mask_by_places(plan, {GPU_A: 0}) == plan


@pytest.mark.parametrize(
    ("version", "older"),
    [
        ("0.9.2", True),
        ("0.23.9+cu128", True),
        ("0.24.0", False),
        ("0.24.0rc1", False),
        ("0.24", False),
        ("1.0", False),
        ("dev", False),
        (None, False),
    ],
)
def test_versions(version: str | None, older: bool) -> None:
    assert is_older(version, "0.24") is older
    assert not is_older(version, None)
