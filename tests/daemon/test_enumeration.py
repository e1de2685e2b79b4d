"""GPU-1, GPU-2: a card is its id, whatever number it has, and an engine gets what it can read."""

import signal
import sys
from pathlib import Path

import pytest

from supervisor.client import RpcError
from supervisor.contracts.failure import ExitedEarly
from supervisor.contracts.instance import LaunchParams, ProcessHandle
from tests.daemon.engined import Engined, stop
from tests.daemon.test_devices import environment, ids, start
from tests.parts.fake_nvml import FakeNvml, gpu, uuid
from tests.parts.stub import stub_binary

SMALL, BIG = uuid(0), uuid(1)
CARDS = (gpu(0, total=16_384), gpu(1, total=143_771))
"""On buses 1B and 1C."""


@pytest.fixture
def bare(engined: Engined) -> Engined:
    """A daemon that is told of no devices: what there is, it finds."""
    told = engined.config.read_text()
    engined.config.write_text(told.partition("[devices]")[0])
    return engined


def test_a_swapped_enumeration_changes_no_card(bare: Engined, nvml: FakeNvml) -> None:
    """Over a restart of the daemon, for an engine that lives through it and for a new one."""
    facts = bare.folder / "facts.json"
    nvml.say(*CARDS)
    client = start(bare, nvml)
    assert ids(client.snapshot()) == [SMALL, BIG, "cpu:0"]
    order = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    binary = bare.stub(dump=str(facts))
    before = client.launch(bare.params(devices=(BIG,), binary=binary))
    seen = environment(facts)
    assert seen["CUDA_VISIBLE_DEVICES"] == BIG
    assert before.record.devices == (BIG,)
    assert bare.end(signal.SIGKILL) != 0
    nvml.say(*reversed(CARDS))
    client = start(bare, nvml)
    assert ids(client.snapshot()) == [SMALL, BIG, "cpu:0"]  # by the bus, as CUDA counts
    after = client.get("x")
    assert after.state == "ready"
    assert isinstance(after.record.ref, ProcessHandle)
    assert after.record.ref == before.record.ref
    assert after.record.devices == (BIG,)
    held = {it.device: [who.name for who in it.holders] for it in client.leases().leases}
    assert (held[BIG], held.get(SMALL, [])) == (["x"], [])
    with pytest.raises(RpcError) as taken:
        client.launch(bare.params("y", devices=(BIG,)))
    assert taken.value.code == 1003
    stop(client)
    again = client.launch(bare.params(devices=(BIG,), binary=binary))
    assert again.record.devices == (BIG,)
    now = environment(facts)
    masks = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    assert {name: now[name] for name in masks} == {name: seen[name] for name in masks}
    stop(client)
    client.launch(bare.params(devices=(BIG,), binary=binary, env=order))
    own = environment(facts)
    assert own["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"  # of no matter: the mask is an id
    assert own["CUDA_VISIBLE_DEVICES"] == BIG
    stop(client)


def strict_vllm(bare: Engined, version: str) -> LaunchParams:
    """A vLLM of this version as far as its package tells, which makes numbers of its mask."""
    venv = bare.folder / f"vllm-{version}"
    packages = venv / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    info = packages / f"vllm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n\n")
    (venv / "bin").mkdir()
    facts = str(bare.folder / "facts.json")
    program = stub_binary(venv / "bin", "vllm", dump=facts, mask_of_ints="CUDA_VISIBLE_DEVICES")
    model = bare.folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    return bare.params(engine="vllm", binary=program, model_path=str(model), devices=(BIG,))


def test_an_engine_that_reads_numbers_gets_numbers(bare: Engined, nvml: FakeNvml) -> None:
    """By its place on the bus, which no order of enumeration changes, and in that order."""
    facts: Path = bare.folder / "facts.json"
    nvml.say(*reversed(CARDS))
    client = start(bare, nvml)
    view = client.launch(strict_vllm(bare, "0.23.0"))
    assert view.state == "ready"
    assert view.record.devices == (BIG,)
    seen = environment(facts)
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_DEVICE_ORDER"]) == ("1", "PCI_BUS_ID")
    stop(client)


def test_an_engine_that_cannot_read_its_mask_says_so(bare: Engined, nvml: FakeNvml) -> None:
    """A version that is said to read ids gets them; that it does not is in its last words."""
    nvml.say(*CARDS)
    client = start(bare, nvml)
    with pytest.raises(RpcError) as failed:
        client.launch(strict_vllm(bare, "0.24.0"))
    failure = failed.value.failure
    assert isinstance(failure, ExitedEarly)
    line = f"ValueError: invalid literal for int() with base 10: '{BIG}'"
    assert line in failure.log_tail.splitlines()
    assert not bare.records()
