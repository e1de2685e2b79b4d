from typing import Any

import pytest

from supervisor.contracts.config import ForeignPolicy
from supervisor.contracts.device import AcceleratorInfo, DeviceProcess
from supervisor.contracts.host import Accelerator, DeviceId
from supervisor.contracts.instance import InstanceRecord
from supervisor.instances.books import holders, memory_is_hosts
from supervisor.instances.lease import (
    Claim,
    Grant,
    InvalidClaim,
    Refusal,
    grant,
)
from tests.instances.builders import GIB, a_device, a_record

A, B, C = (a_device(f"GPU-{letter}", index=index) for index, letter in enumerate("abc"))
CPU = a_device("cpu:0", "cpu", index=9, memory=64 * GIB, unified=True)
METAL = a_device("metal:0", "metal", memory=64 * GIB, unified=True)
GB10 = a_device("GPU-spark", "cuda", memory=128 * GIB, unified=True)
GPUS = (A, B, C, CPU)


def held(
    name: str, *devices: DeviceId, exclusive: bool = True, claims: int | None = None, **more: Any
) -> dict[str, InstanceRecord]:
    record = a_record(name, devices=devices, exclusive=exclusive, memory_bytes=claims, **more)
    return {name: record}


def granted(claim: Claim, records: dict[str, InstanceRecord], **more: Any) -> Grant:
    answer = grant(claim, more.pop("offered", GPUS), records, **({"accelerator": "cuda"} | more))
    assert isinstance(answer, Grant), answer
    return answer


def refused(claim: Claim, records: dict[str, InstanceRecord], **more: Any) -> Refusal:
    answer = grant(claim, more.pop("offered", GPUS), records, **({"accelerator": "cuda"} | more))
    assert isinstance(answer, Refusal), answer
    return answer


def test_a_processors_own_gpu_is_no_choice_beside_cards() -> None:
    """It has the host's memory, the most there is, and would always come first."""
    apu = a_device("amd:0000:c4:00.0", "rocm", index=0, memory=256 * GIB, unified=True)
    card = a_device("amd:9246a6cf2c5e4dd1", "rocm", index=1, memory=64 * GIB)
    on_both = {"offered": (apu, card), "accelerator": "rocm"}
    assert granted(Claim(), {}, **on_both).devices == (card.id,)
    assert refused(Claim(count=2), {}, **on_both).free == 1
    assert granted(Claim(devices=(apu.id,)), {}, **on_both).devices == (apu.id,)
    alone = {"offered": (apu,), "accelerator": "rocm"}
    assert granted(Claim(), {}, **alone).devices == (apu.id,)


def test_holders_are_the_records() -> None:
    records = (
        held("late", "GPU-a", exclusive=False, claims=7, started_at="2026-01-02T00:00:00.000Z")
        | held("early", "GPU-a", "GPU-gone", exclusive=False)
        | held("far", "GPU-a", node_id="other")
        | {"bare": a_record("bare", bare=True, devices=("GPU-b",))}
        | held("reserved", "GPU-c", ref=None)
    )
    found = holders(records)
    assert {name: [each.name for each in those] for name, those in found.items()} == {
        "GPU-a": ["early", "late"],
        "GPU-gone": ["early"],
        "GPU-b": ["bare"],
        "GPU-c": ["reserved"],
    }
    assert found["GPU-a"][1].memory_bytes == 7
    assert found["GPU-a"][1].nonce == "nonce-of-late"
    assert found["GPU-b"][0].exclusive


def test_a_count_gets_the_first_free_ones() -> None:
    assert granted(Claim(), {}) == Grant(("GPU-a",), exclusive=True)
    assert granted(Claim(count=2), held("x", "GPU-a")) == Grant(("GPU-b", "GPU-c"), exclusive=True)


def test_too_few_is_no_capacity_and_never_a_smaller_launch() -> None:
    answer = refused(Claim(count=2), held("x", "GPU-a") | held("y", "GPU-c", exclusive=False))
    assert (answer.need, answer.free) == (2, 1)
    assert (answer.need_bytes, answer.free_bytes) == (None, None)
    assert answer.detail == (
        "1 of 3 cuda devices can be had, 2 needed: GPU-a is held by x (exclusive); "
        "GPU-c is held by y"
    )
    assert refused(Claim(count=4), {}).detail == "3 of 3 cuda devices can be had, 4 needed"


def test_a_list_gets_what_it_names_in_its_order() -> None:
    claim = Claim(devices=("GPU-c", "GPU-a"))
    assert granted(claim, held("x", "GPU-b")) == Grant(("GPU-c", "GPU-a"), exclusive=True)
    answer = refused(claim, held("x", "GPU-c"))
    assert (answer.need, answer.free) == (2, 1)
    assert "of 2 named devices" in answer.detail
    assert "GPU-c is held by x (exclusive)" in answer.detail


def test_lists_in_either_order_are_the_same_claim() -> None:
    first = granted(Claim(devices=("GPU-a", "GPU-b")), {})
    records = held("x", *first.devices)
    assert refused(Claim(devices=("GPU-b", "GPU-a")), records).free == 0


def test_an_absent_device_is_not_there_to_be_had() -> None:
    answer = refused(Claim(devices=("GPU-a", "GPU-z")), {})
    assert (answer.need, answer.free) == (2, 1)
    assert "GPU-z is not on this host" in answer.detail


@pytest.mark.parametrize(
    ("claim", "problem"),
    [
        (Claim(count=0), "at least one device"),
        (Claim(count=-1), "at least one device"),
        (Claim(devices=()), "empty"),
        (Claim(devices=("GPU-a", "GPU-b", "GPU-a")), "named twice: GPU-a"),
        (Claim(devices=("GPU-z", "GPU-z")), "named twice: GPU-z"),
        (Claim(devices=("GPU-a", "cpu:0")), "different kinds: cpu, cuda"),
        (Claim(memory_bytes=0), "must be positive"),
    ],
)
def test_a_claim_that_contradicts_itself_is_invalid_not_refused(claim: Claim, problem: str) -> None:
    answer = grant(claim, GPUS, {}, accelerator="cuda")
    assert isinstance(answer, InvalidClaim)
    assert problem in answer.detail


@pytest.mark.parametrize(
    ("present", "newcomer", "fits"),
    [(True, True, False), (True, False, False), (False, True, False), (False, False, True)],
)
def test_exclusive_means_alone_on_either_side(present: bool, newcomer: bool, fits: bool) -> None:
    claim = Claim(devices=("GPU-a",), exclusive=newcomer)
    answer = grant(claim, GPUS, held("x", "GPU-a", exclusive=present), accelerator="cuda")
    assert isinstance(answer, Grant) == fits


@pytest.mark.parametrize(
    ("device", "accelerator", "exclusive"),
    [(A, "cuda", True), (CPU, "cpu", False), (METAL, "metal", False), (GB10, "cuda", False)],
)
def test_the_default_is_alone_where_the_memory_is_the_devices_own(
    device: AcceleratorInfo, accelerator: Accelerator, exclusive: bool
) -> None:
    assert memory_is_hosts(device) != exclusive
    answer = granted(Claim(), {}, offered=(device,), accelerator=accelerator)
    assert answer == Grant((device.id,), exclusive)


def test_any_number_of_engines_runs_on_the_cpu() -> None:
    records: dict[str, InstanceRecord] = {}
    for number in range(20):
        answer = granted(Claim(), records, offered=(CPU,), accelerator="cpu")
        records |= held(f"n{number}", *answer.devices, exclusive=answer.exclusive)


def test_the_cpu_is_chosen_where_it_is_the_accelerator_or_by_name() -> None:
    everything = held("x", "GPU-a", "GPU-b", "GPU-c")
    assert refused(Claim(), everything).free == 0
    assert granted(Claim(devices=("cpu:0",)), everything) == Grant(("cpu:0",), exclusive=False)
    assert granted(Claim(), {}, accelerator="cpu").devices == ("cpu:0",)
    answer = refused(Claim(count=2), {}, accelerator="cpu")
    assert (answer.need, answer.free) == (2, 1)


def test_a_mixed_host_stays_within_its_accelerator() -> None:
    amd = a_device("amd:1", "rocm", index=5)
    assert refused(Claim(count=4), {}, offered=(*GPUS, amd)).free == 3
    assert granted(Claim(devices=("amd:1",)), {}, offered=(*GPUS, amd)).devices == ("amd:1",)


def test_no_device_at_all() -> None:
    answer = refused(Claim(), {}, offered=())
    assert (answer.need, answer.free) == (1, 0)
    assert answer.detail == "0 of 0 cuda devices can be had, 1 needed"


def test_shared_devices_have_one_budget() -> None:
    records = held("x", "GPU-a", exclusive=False, claims=16 * GIB)
    claim = Claim(devices=("GPU-a",), exclusive=False, memory_bytes=8 * GIB)
    granted(claim, records)
    more = Claim(devices=("GPU-a",), exclusive=False, memory_bytes=8 * GIB + 1)
    answer = refused(more, records)
    assert (answer.need, answer.free) == (1, 0)
    assert (answer.need_bytes, answer.free_bytes) == (8 * GIB + 1, 8 * GIB)
    assert f"GPU-a has {8 * GIB} bytes to claim, is held by x" in answer.detail


def test_a_claim_beyond_the_device_is_refused_even_alone() -> None:
    answer = refused(Claim(count=2, memory_bytes=25 * GIB), {})
    assert (answer.need_bytes, answer.free_bytes) == (25 * GIB, 24 * GIB)


def test_what_could_have_been_claimed_is_told_for_as_many_devices_as_are_needed() -> None:
    records = held("x", "GPU-a", exclusive=False, claims=20 * GIB) | held(
        "y", "GPU-b", exclusive=False, claims=10 * GIB
    )
    claim = Claim(count=2, exclusive=False, memory_bytes=20 * GIB)
    answer = refused(claim, records)
    assert (answer.free, answer.free_bytes) == (1, 14 * GIB)
    granted(Claim(count=2, exclusive=False, memory_bytes=14 * GIB), records)


def test_without_a_claim_memory_is_advisory() -> None:
    full = held("x", "GPU-a", exclusive=False, claims=24 * GIB)
    granted(Claim(devices=("GPU-a",), exclusive=False), full)
    unsaid = held("x", "GPU-a", exclusive=False)
    granted(Claim(devices=("GPU-a",), exclusive=False, memory_bytes=24 * GIB), unsaid)


def test_a_device_that_does_not_tell_its_size_refuses_no_claim() -> None:
    shy = a_device("GPU-shy", memory=None)
    claim = Claim(exclusive=False, memory_bytes=1 << 50)
    granted(claim, held("x", "GPU-shy", exclusive=False, claims=1), offered=(shy,))


def test_host_memory_is_budgeted_once() -> None:
    """Metal's memory is the CPU's, and two devices of it take twice the claim."""
    offered = (METAL, CPU)
    records = held("x", "cpu:0", exclusive=False, claims=40 * GIB)
    more = {"offered": offered, "accelerator": "metal"}
    assert refused(Claim(memory_bytes=25 * GIB), records, **more).free_bytes == 24 * GIB
    granted(Claim(memory_bytes=24 * GIB), records, **more)
    pair = (a_device("cpu:0", "cpu", unified=True), a_device("cpu:1", "cpu", unified=True))
    both = Claim(count=2, memory_bytes=13 * GIB)
    assert refused(both, {}, offered=pair, accelerator="cpu").free_bytes == 12 * GIB


def test_the_choice_is_most_unclaimed_memory_then_fewest_holders_then_index() -> None:
    big = a_device("GPU-big", index=7, memory=80 * GIB)
    assert granted(Claim(), {}, offered=(A, big)).devices == ("GPU-big",)
    records = held("x", "GPU-a", exclusive=False, claims=1)
    assert granted(Claim(exclusive=False), records).devices == ("GPU-b",)
    silent = held("x", "GPU-a", exclusive=False)
    assert granted(Claim(exclusive=False), silent).devices == ("GPU-b",)
    assert granted(Claim(), {}, offered=(C, B, A)).devices == ("GPU-a",)


def test_what_is_withheld_goes_to_nobody() -> None:
    withheld = {"GPU-a": "the record of 'x' cannot be read"}
    assert granted(Claim(), {}, withheld=withheld).devices == ("GPU-b",)
    answer = refused(Claim(devices=("GPU-a",)), {}, withheld=withheld)
    assert "GPU-a is withheld: the record of 'x' cannot be read" in answer.detail


def test_a_lost_device_is_still_held_and_disturbs_nothing() -> None:
    assert granted(Claim(count=3), held("x", "GPU-lost")).devices == ("GPU-a", "GPU-b", "GPU-c")


WHOLE = a_device("GPU-w", index=1, memory=80 * GIB)
LEFT, RIGHT = (
    a_device(f"MIG-{side}", index=index, memory=40 * GIB, parent="GPU-w")
    for index, side in ((2, "left"), (3, "right"))
)
SLICED = (A, WHOLE, LEFT, RIGHT)


@pytest.mark.parametrize(
    ("held_device", "wanted", "fits"),
    [
        ("GPU-w", "MIG-left", False),
        ("MIG-left", "GPU-w", False),
        ("MIG-left", "MIG-left", False),
        ("MIG-left", "MIG-right", True),
        ("GPU-a", "GPU-w", True),
    ],
)
@pytest.mark.parametrize("exclusive", [True, False])
def test_a_whole_and_its_slices_keep_each_other_out(
    held_device: str, wanted: str, fits: bool, exclusive: bool
) -> None:
    """However willing to share: work on the whole is work on every slice."""
    records = held("x", held_device, exclusive=exclusive)
    claim = Claim(devices=(wanted,), exclusive=exclusive)
    answer = grant(claim, SLICED, records, accelerator="cuda")
    assert isinstance(answer, Grant) == (fits or (held_device == wanted and not exclusive))


def test_who_has_the_whole_or_a_slice_is_told() -> None:
    answer = refused(Claim(devices=("GPU-w",)), held("x", "MIG-right"), offered=SLICED)
    assert "GPU-w has its slice MIG-right held by x (exclusive)" in answer.detail
    answer = refused(Claim(devices=("MIG-left",)), held("x", "GPU-w"), offered=SLICED)
    assert "MIG-left has its whole GPU-w held by x (exclusive)" in answer.detail


def test_the_whole_of_a_sliced_device_is_had_by_name_only() -> None:
    assert granted(Claim(count=3), {}, offered=SLICED).devices == ("GPU-a", "MIG-left", "MIG-right")
    assert granted(Claim(devices=("GPU-w",)), {}, offered=SLICED).devices == ("GPU-w",)
    both = Claim(devices=("GPU-w", "MIG-left"))
    answer = grant(both, SLICED, {}, accelerator="cuda")
    assert isinstance(answer, InvalidClaim)
    assert "MIG-left is a slice of GPU-w" in answer.detail


def test_what_is_withheld_takes_its_relatives_along() -> None:
    withheld = {"MIG-left": "lost"}
    assert refused(Claim(devices=("GPU-w",)), {}, offered=SLICED, withheld=withheld).free == 0
    claim = Claim(devices=("MIG-right",))
    assert granted(claim, {}, offered=SLICED, withheld=withheld).devices == ("MIG-right",)


TRAINING = {"GPU-a": (DeviceProcess(pid=4711, name="python"),)}


@pytest.mark.parametrize(
    ("policy", "by_count", "by_name"),
    [("avoid", "GPU-b", True), ("refuse", "GPU-b", False), ("allow", "GPU-a", True)],
)
def test_a_device_that_somebody_else_computes_on(
    policy: ForeignPolicy, by_count: str, by_name: bool
) -> None:
    more: dict[str, Any] = {"foreign": TRAINING, "policy": policy}
    assert granted(Claim(), {}, **more).devices == (by_count,)
    named = grant(Claim(devices=("GPU-a",)), GPUS, {}, accelerator="cuda", **more)
    assert isinstance(named, Grant) == by_name
    if isinstance(named, Refusal):
        assert "GPU-a is used by python (pid 4711), none of ours" in named.detail
    if policy != "allow":
        answer = refused(Claim(count=3), {}, **more)
        assert (answer.need, answer.free) == (3, 2)
        assert "python (pid 4711)" in answer.detail


def test_somebody_on_a_slice_is_on_the_whole() -> None:
    foreign = {"MIG-left": TRAINING["GPU-a"]}
    answer = refused(
        Claim(devices=("GPU-w",)), {}, offered=SLICED, foreign=foreign, policy="refuse"
    )
    assert "GPU-w is used by python (pid 4711)" in answer.detail


def test_memory_that_is_in_use_is_not_free_to_choose() -> None:
    """The budget is what records claim; the choice also looks at what is measured."""
    busy = a_device("GPU-busy", index=0, memory=80 * GIB, used=70 * GIB)
    idle = a_device("GPU-idle", index=1, memory=24 * GIB, used=0)
    assert granted(Claim(), {}, offered=(busy, idle)).devices == ("GPU-idle",)
