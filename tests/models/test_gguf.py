"""The GGUF header against real files, files of every version, and files that lie.

Layout: ggml's docs/gguf.md. Sizes of the real ones: what llama-server b11434 logs as its model
buffer (0.49 and 92.10 MiB).
"""

import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contracts.model import CacheLayer, ModelFacts, Unreadable
from supervisor.models.facts import Library, model_facts
from supervisor.models.gguf import read_gguf
from supervisor.models.split import split_of
from tests.models.ggufs import ARRAY, F32, Q4_K, STRING, Made, llama
from tests.parts.real_llama import smollm2, tiny_gguf


def known(path: Path | str) -> ModelFacts:
    found = model_facts(str(path))
    assert isinstance(found, ModelFacts), found
    return found


def refused(path: Path | str) -> str:
    found = model_facts(str(path))
    assert isinstance(found, Unreadable), found
    return found.reason


def test_the_tiny_model() -> None:
    facts = known(tiny_gguf())
    assert facts.weights_bytes / 2**20 == pytest.approx(0.49, abs=0.005)
    assert facts.layers == (CacheLayer(count=2, keys=64, values=64),)
    assert (facts.architecture, facts.context_length, facts.vocabulary) == ("llama", 4096, 354)


def test_smollm2() -> None:
    """9 heads of 64 share 3 for keys and values, in 30 layers (its model card)."""
    facts = known(smollm2())
    assert facts.weights_bytes / 2**20 == pytest.approx(92.10, abs=0.005)
    assert facts.layers == (CacheLayer(count=30, keys=192, values=192),)
    assert (facts.context_length, facts.vocabulary) == (8192, 49152)


@pytest.mark.parametrize("mark", ["<", ">"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_in_both_byte_orders(version: int, mark: str, tmp_path: Path) -> None:
    made = Made(
        version=version,
        mark=mark,
        metadata=llama(tokenizer__ggml__tokens=("a", "b" * 70_000, ""), general__x=1.5),
        tensors=[("a", (256, 3), Q4_K, 0), ("b", (5,), F32, 448)],
        data=bytes(448 + 20),
    )
    path = made.write(tmp_path / "m.gguf")
    file = read_gguf(str(path))
    assert (file.version, file.big_endian) == (version, mark == ">")
    # 3 blocks of 144 bytes (ggml's block_q4_K), and 5 floats.
    assert file.tensor_bytes == 3 * 144 + 5 * 4
    assert known(path).layers == (CacheLayer(count=4, keys=16, values=16),)


def test_a_type_that_is_not_known_reaches_to_the_next_tensor(tmp_path: Path) -> None:
    made = Made(
        metadata=llama(),
        tensors=[("a", (7,), 4711, 0), ("b", (8,), F32, 64)],
        data=bytes(96),
    )
    assert known(made.write(tmp_path / "m.gguf")).weights_bytes == 64 + 32


def test_heads_by_layer_window_and_length(tmp_path: Path) -> None:
    metadata = {key.replace("llama.", "gemma3."): value for key, value in llama(x=1).items()} | {
        "general.architecture": "gemma3",
        "gemma3.block_count": 12,
        "gemma3.attention.key_length": 32,
        "gemma3.attention.value_length": 24,
        "gemma3.attention.sliding_window": 512,
    }
    facts = known(Made(metadata=metadata).write(tmp_path / "m.gguf"))
    # Of every six layers of Gemma 3 five see a window (its report; set_swa_pattern(6)).
    assert sorted(facts.layers, key=lambda layer: layer.count) == [
        CacheLayer(count=2, keys=64, values=48),
        CacheLayer(count=10, keys=64, values=48, window=512),
    ]


def test_layers_without_a_cache_are_left_out(tmp_path: Path) -> None:
    metadata = llama(llama__attention__head_count_kv=(0, 2, 0, 2), llama__ssm__state_size=16)
    facts = known(Made(metadata=metadata).write(tmp_path / "m.gguf"))
    assert facts.layers == (CacheLayer(count=2, keys=16, values=16),)
    assert facts.recurrent


@pytest.mark.parametrize("key", ["general.architecture", "general.type"])
def test_a_projector_is_told(key: str, tmp_path: Path) -> None:
    value = "clip" if key.endswith("architecture") else "mmproj"
    assert known(Made(metadata=llama() | {key: value}).write(tmp_path / "m.gguf")).projector


# ── splits ───────────────────────────────────────────────────────────────────


def test_any_part_leads_to_all() -> None:
    split = split_of("/m/x-00002-of-00003.gguf")
    assert split is not None
    assert split.first == "/m/x-00001-of-00003.gguf"
    assert len(split.paths) == 3
    assert split_of("/m/x.gguf") is None
    assert split_of("/m/x-00004-of-00003.gguf") is None
    assert split_of("/m/x-00000-of-00003.gguf") is None
    assert split_of("/m/x-00001-of-99999.gguf") is None


def test_a_split_model_has_the_weights_of_all_its_files(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    tensor = ("a", (8,), F32, 0)
    Made(metadata=llama(), tensors=[tensor], data=bytes(32)).write(parts[0])
    assert str(parts[1]) in refused(parts[0])
    Made(metadata={"split.no": 1}, tensors=[tensor], data=bytes(32)).write(parts[1])
    for part in parts:
        assert known(part).weights_bytes == 64
        assert known(part).files == tuple(map(str, parts))


# ── files that lie ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no GGUF file"),
        (b"GGUF", "no GGUF file"),
        (bytes(4096), "no GGUF file"),
        (b"GGUF" + bytes(4096), "version 0"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version 4"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "architecture"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 0), "claims"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, (1 << 64) - 1), "claims"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, (1 << 64) - 1), "name of"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 60_000), "ends"),
        (Made(metadata={"a": struct.pack("<I", 99)}).content(), "type 99"),
        (Made(metadata={"a": struct.pack("<IQ", STRING, 1 << 60)}).content(), "ends"),
        (Made(metadata={"a": struct.pack("<IIQ", ARRAY, STRING, 1 << 60)}).content(), "list of"),
        (Made(metadata={"a": struct.pack("<IIQ", ARRAY, 5, 1 << 60)}).content(), "ends"),
        (Made(metadata={"a": struct.pack("<IIQ", ARRAY, ARRAY, 1)}).content(), "list of values"),
        (Made(metadata=llama(general__alignment=0)).content(), "alignment"),
        (Made(metadata=llama(llama__block_count=0)).content(), "layers"),
        (Made(metadata=llama(llama__block_count=(1 << 32) - 1)).content(), "layers"),
        (Made(metadata=llama(llama__attention__head_count=(1, 2))).content(), "2 numbers"),
        (Made(metadata=llama(), tensors=[("a", (1,) * 9, F32, 0)]).content(), "dimensions"),
        (Made(metadata=llama(), tensors=[("a", (64,), F32, 0)]).content(), "last 256 bytes"),
        (Made(metadata=llama(), tensors=[("a", (2**64 - 1,) * 4, F32, 0)]).content(), "not whole"),
    ],
)
def test_a_file_that_lies_gets_a_typed_answer(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert said in refused(path)


def test_every_beginning_of_a_file_gets_a_typed_answer(tmp_path: Path) -> None:
    made = Made(
        metadata=llama(tokens=("a", "bc"), numbers=(1, 2)),
        tensors=[("a", (8,), F32, 0)],
        data=bytes(32),
    )
    whole, path = made.content(), tmp_path / "m.gguf"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(path)
    path.write_bytes(whole)
    known(path)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damage_raises(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    made = Made(metadata=llama(tokens=("a", "bc")), tensors=[("a", (8,), F32, 0)], data=bytes(32))
    content = bytearray(made.content())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content)
    assert isinstance(model_facts(str(path)), ModelFacts | Unreadable)


def test_a_huge_hollow_file_is_read_in_bounded_time(tmp_path: Path) -> None:
    """A hollow file of 64 GiB that claims eight million empty texts."""
    path = tmp_path / "m.gguf"
    claim = struct.pack("<IIQ", ARRAY, STRING, 8 << 20)
    path.write_bytes(Made(metadata={"a": claim}).content())
    os.truncate(path, 1 << 36)
    began = time.monotonic()
    refused(path)
    assert time.monotonic() - began < 20


def test_what_is_no_file_is_answered_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.gguf"
    os.mkfifo(fifo)
    assert "no regular file" in refused(fifo)
    assert "No such file" in refused(tmp_path / "absent.gguf")
    assert "no regular file" in refused("/dev/zero")
    assert refused("/a\0b")
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    assert refused(loop)


def test_the_library_reads_again_what_changed(tmp_path: Path) -> None:
    path, library = tmp_path / "m.gguf", Library()
    assert isinstance(library.facts(str(path)), Unreadable)
    Made(metadata=llama()).write(path)
    first = library.facts(str(path))
    assert isinstance(first, ModelFacts)
    assert library.facts(str(path)) is first
    path.unlink()
    Made(metadata=llama(llama__context_length=17)).write(path)
    second = library.facts(str(path))
    assert isinstance(second, ModelFacts)
    assert second.context_length == 17
