"""Directories of Hugging Face: configs as the hub has them (cut to what matters), and hostile ones.

The configs are those of the models' repositories on the hub; what a layer keeps follows from the
models' reports: two vectors of ``head_dim`` for each of the key-value heads, and for DeepSeek's MLA
one of 512 + 64.
"""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from supervisor.contracts.model import CacheLayer, ModelFacts, Unreadable
from supervisor.models.facts import model_facts
from tests.parts.real_llama import tiny_hf

QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 152064,
}
MLA = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "max_position_embeddings": 163840,
}
GEMMA = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 3840,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
    },
    "torch_dtype": "bfloat16",
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}
QWEN_NEXT = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
}


def safetensors(size: int, claimed: int | None = None) -> bytes:
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, claimed or size]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


def folder(path: Path, config: Any, **files: bytes) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    for name, content in (files or {"model.safetensors": safetensors(64)}).items():
        (path / name).write_bytes(content)
    return path


def known(path: Path) -> ModelFacts:
    found = model_facts(str(path))
    assert isinstance(found, ModelFacts), found
    return found


def refused(path: Path) -> str:
    found = model_facts(str(path))
    assert isinstance(found, Unreadable), found
    return found.reason


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (QWEN, {CacheLayer(count=28, keys=512, values=512)}),
        (MLA, {CacheLayer(count=61, keys=576, values=0)}),
        (
            GEMMA,
            {
                CacheLayer(count=8, keys=2048, values=2048),
                CacheLayer(count=40, keys=2048, values=2048, window=1024),
            },
        ),
        (
            GPT_OSS,
            {
                CacheLayer(count=12, keys=512, values=512),
                CacheLayer(count=12, keys=512, values=512, window=128),
            },
        ),
        (QWEN_NEXT, {CacheLayer(count=12, keys=512, values=512)}),
    ],
    ids=["gqa", "mla", "nested-window", "layer-types", "hybrid"],
)
def test_what_layers_keep(config: Any, layers: set[CacheLayer], tmp_path: Path) -> None:
    facts = known(folder(tmp_path / "m", config))
    assert set(facts.layers) == layers
    assert facts.weights_bytes == 64
    assert facts.recurrent == (config is QWEN_NEXT)


def test_the_rest_of_a_config(tmp_path: Path) -> None:
    facts = known(folder(tmp_path / "m", QWEN))
    assert (facts.context_length, facts.vocabulary, facts.dtype) == (32768, 152064, "bfloat16")
    assert facts.architecture == "Qwen2ForCausalLM"
    assert known(folder(tmp_path / "g", GEMMA)).dtype == "bfloat16"
    assert known(folder(tmp_path / "d", MLA)).experts == 256


def test_what_is_no_json_and_yet_in_configs(tmp_path: Path) -> None:
    """Mamba-like models have ``"time_step_limit": [0.0, Infinity]``."""
    facts = known(folder(tmp_path / "m", QWEN | {"time_step_limit": [0.0, float("inf")]}))
    assert facts.context_length == 32768


def test_a_real_directory() -> None:
    """As mlx-lm loads it; what it is made of stands in ``tests/parts/tiny_hf.py``."""
    path = tiny_hf()
    facts = known(path)
    size = (path / "model.safetensors").stat().st_size
    assert 0 < size - facts.weights_bytes < 16 << 10  # the header
    assert facts.architecture == "LlamaForCausalLM"
    assert facts.layers == (CacheLayer(count=2, keys=128, values=128),)


def test_an_index_names_its_files_and_all_must_be_there(tmp_path: Path) -> None:
    names = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    index = {"metadata": {"total_size": 9}, "weight_map": {f"w{name}": name for name in names}}
    content = json.dumps(index).encode()
    path = folder(tmp_path / "m", QWEN, **{"model.safetensors.index.json": content})
    for name in names[:2]:
        (path / name).write_bytes(safetensors(100))
    assert names[2] in refused(path)
    (path / names[2]).write_bytes(safetensors(10))
    assert known(path).weights_bytes == 210


def test_files_named_by_links_are_read(tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(safetensors(100))
    path = folder(tmp_path / "m", QWEN, other=b"")
    (path / "model.safetensors").symlink_to(blob)
    assert known(path).weights_bytes == 100


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"{", "config.json"),
        ("config.json", b"[1]", "config.json"),
        ("config.json", b"[" * 100_000, "config.json"),
        ("config.json", b"\xff\xfe", "config.json"),
        ("config.json", b" " * (9 << 20), "too much"),
        ("model.safetensors", b"", "too short"),
        ("model.safetensors", bytes(8), "no sensible header"),
        ("model.safetensors", b"\xff" * 64, "claims a header"),
        ("model.safetensors", safetensors(64, claimed=1 << 60), "lacks its last"),
        ("model.safetensors", safetensors(64)[:-1], "lacks its last 1 bytes"),
        (
            "model.safetensors",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n",
            "git lfs pull",
        ),
        ("model.safetensors.index.json", b"{}", "makes no sense"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "../x"}}', "outside"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "/etc/passwd"}}', "outside"),
    ],
)
def test_hostile_directories(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = folder(tmp_path / "m", QWEN)
    (path / name).write_bytes(content)
    assert said in refused(path)


def test_what_is_in_the_place_of_a_file(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", QWEN)
    (path / "config.json").unlink()
    assert "No such file" in refused(path)
    os.mkfifo(path / "config.json")
    assert "no regular file" in refused(path)
    (path / "config.json").unlink()
    (path / "config.json").mkdir()
    assert "no regular file" in refused(path)
    other = folder(tmp_path / "o", QWEN, readme=b"")
    assert "no weights" in refused(other)


def test_strange_numbers_leave_the_cache_unknown(tmp_path: Path) -> None:
    for strange in (-1, 1 << 80, 1.5, True, None, "7"):
        facts = known(folder(tmp_path / "m", QWEN | {"num_hidden_layers": strange}))
        assert facts.layers == ()
