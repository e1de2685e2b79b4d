from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from supervisor.contracts.instance import (
    RECORD_SCHEMA,
    DockerHandle,
    InstanceRecord,
    ProcessHandle,
)
from supervisor.instances.codec import (
    Unreadable,
    decode_record,
    encode_record,
    salvage,
    valid_name,
)
from tests.contracts.strategies import values
from tests.instances.builders import a_record


def tree_of(record: InstanceRecord) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    return tree


def refusal(data: bytes, name: str = "qwen") -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        decode_record(data, name)
    return caught.value


@given(values(InstanceRecord), st.integers(0, 65_535))
def test_a_record_comes_back(record: InstanceRecord, port: int) -> None:
    record = msgspec.structs.replace(record, port=port)
    if isinstance(record.ref, ProcessHandle | DockerHandle):
        record = msgspec.structs.replace(record, ref=None)
    if record.supervision is not UNSET:
        inner = msgspec.structs.replace(
            record.supervision, schema_version=RECORD_SCHEMA, log_path="/log", cgroup=None
        )
        record = msgspec.structs.replace(record, supervision=inner)
    decoded = decode_record(encode_record(record), record.name)
    assert (decoded.record, decoded.writable, dict(decoded.unknown)) == (record, True, {})


def test_what_is_not_known_is_kept_wherever_a_newer_version_may_add_it() -> None:
    record = a_record()
    tree = tree_of(record)
    tree["later"] = {"a": [1]}
    tree["supervision"]["later"] = 2
    tree["supervision"]["launch"]["later"] = None
    tree["supervision"]["launch"]["options"] = {"tensorParallel": 2, "later": "x"}
    decoded = decode_record(msgspec.json.encode(tree), "qwen")
    assert decoded.writable
    changed = msgspec.structs.replace(decoded.record, port=21_007)
    again = msgspec.json.decode(encode_record(changed, decoded.unknown))
    assert again == tree | {"port": 21_007}


def test_what_is_not_known_goes_with_its_object() -> None:
    tree = tree_of(a_record())
    tree["supervision"]["later"] = 2
    decoded = decode_record(msgspec.json.encode(tree), "qwen")
    bare = msgspec.structs.replace(decoded.record, supervision=UNSET)
    assert msgspec.json.decode(encode_record(bare, decoded.unknown)) == tree_of(bare)


def test_a_newer_schema_is_read_and_not_writable() -> None:
    decoded = decode_record(encode_record(a_record(schema_version=RECORD_SCHEMA + 1)), "qwen")
    assert not decoded.writable
    assert decoded.record.devices == ("GPU-a",)


def test_a_newer_supervision_that_makes_no_sense_to_us_still_holds_its_devices() -> None:
    tree = tree_of(a_record())
    tree["supervision"] = {"schemaVersion": RECORD_SCHEMA + 1, "intent": "dreaming"}
    decoded = decode_record(msgspec.json.encode(tree), "qwen")
    assert not decoded.writable
    assert decoded.record == a_record(bare=True)


def test_a_record_of_the_seed_alone_is_complete() -> None:
    decoded = decode_record(encode_record(a_record(bare=True)), "qwen")
    assert decoded.writable
    assert decoded.record.supervision is UNSET


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (bytes(1500), "zero-filled"),
        (encode_record(a_record())[:300], "not-json"),
        (b"\xff\xfe", "not-json"),
        (b"[" * 100_000, "not-json"),
        (b"null", "wrong-types"),
        (b"[]", "wrong-types"),
        (b"{}", "wrong-types"),
        (encode_record(a_record(port="x")), "wrong-types"),
        (encode_record(a_record(engine="abacus")), "wrong-types"),
        (encode_record(a_record(intent="dreaming")), "wrong-types"),
        (encode_record(a_record(ref=ProcessHandle(pid=-1, start_token=None))), "wrong-types"),
        (encode_record(a_record(ref=ProcessHandle(pid=0, start_token=None))), "wrong-types"),
        (encode_record(a_record(ref=DockerHandle(container=""))), "wrong-types"),
        (encode_record(a_record("other")), "name-mismatch"),
    ],
)
def test_what_is_no_record_says_why(data: bytes, reason: str) -> None:
    assert refusal(data).reason == reason


def test_a_newer_record_we_cannot_place_is_no_record() -> None:
    newer = a_record(schema_version=RECORD_SCHEMA + 1, engine="abacus")
    why = refusal(encode_record(newer))
    assert why.reason == "wrong-types"
    assert "newer version" in why.detail


@given(st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
    msgspec.json.encode
))  # fmt: skip
def test_anything_is_a_record_or_is_refused(data: bytes) -> None:
    assert refusal(data).detail


def test_a_record_cut_anywhere_still_tells_what_comes_before_the_cut() -> None:
    whole = encode_record(a_record(devices=("GPU-a", "GPU-b")))
    told = [salvage(whole[:cut]) for cut in range(len(whole))]
    assert {remains.devices for remains in told} == {None, ("GPU-a", "GPU-b")}
    assert {remains.nonce for remains in told} == {None, "nonce-of-qwen"}
    assert told[-1].nonce
    assert told[-1].devices


@given(st.binary() | st.text().map(lambda text: f'"devices":[{text}],"nonce":"{text}"'.encode()))
def test_anything_can_be_searched(data: bytes) -> None:
    salvage(data)


@pytest.mark.parametrize("name", ["a", "A.b_c-1", "9", "x" * 63, "a.json", "a.json.1", "con"])
def test_names(name: str) -> None:
    assert valid_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".a", "-a", "a/b", "../../etc/x", "a b", "a\n", "x" * 64, "ü", "😀", "a\0",
     "org/model:Q4", "a:b", "٣"],
)  # fmt: skip
def test_what_is_no_name(name: str) -> None:
    assert not valid_name(name)
