"""The estimate beside what a real llama-server logs and takes.

Its log says its cache in MiB with two digits, and that is what ours must round to.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.figures.fit import MIB, SERVINGS, estimated, load
from tests.models.layouts import compressed, windowed
from tests.parts.real_llama import require, tiny_gguf

WINDOWED: tuple[tuple[str, ...], ...] = (
    (),
    ("-c", "4096", "-np", "2"),
    ("-c", "4096", "-np", "1", "-ub", "64"),
    ("--swa-full",),
    ("-c", "4096", "-np", "3", "-kvu"),
    ("-c", "4096", "-ctk", "q8_0", "-ctv", "q5_1"),
)


def agrees(server: Path, model: Path, words: Sequence[str]) -> float:
    """Our need over the resident memory of the loaded server."""
    fit, real = estimated(model, words), load(server, model, words)
    assert fit.kv_bytes is not None
    assert fit.overhead_bytes is not None
    assert fit.kv_bytes / MIB == pytest.approx(real.cache_mib, abs=0.011)
    # Compute and output buffers are a rule of thumb, stated in docs/fit.md.
    assert fit.overhead_bytes / MIB - 48 == pytest.approx(real.buffers_mib, rel=0.4, abs=1)
    return (fit.need_bytes or 0) / real.resident_bytes


@pytest.mark.parametrize("words", SERVINGS, ids=" ".join)
def test_smollm2(words: Sequence[str]) -> None:
    server, model = require("genuine-llama-server"), require("smollm2")
    assert agrees(server, model, words) == pytest.approx(1, abs=0.15)


def test_without_flash_attention() -> None:
    """Its scores are no resident memory before the first long prompt."""
    server, model = require("genuine-llama-server"), require("smollm2")
    assert agrees(server, model, ("-c", "4096", "-fa", "off")) > 1


@pytest.mark.parametrize("words", [(), ("-c", "1000", "-np", "3")], ids=" ".join)
def test_tiny(words: Sequence[str]) -> None:
    agrees(require("genuine-llama-server"), tiny_gguf(), words)


@pytest.mark.parametrize("words", WINDOWED, ids=" ".join)
def test_a_model_with_windows(words: Sequence[str], tmp_path: Path) -> None:
    server = require("genuine-llama-server")
    agrees(server, windowed(tmp_path / "m.gguf"), words)


@pytest.mark.parametrize("words", [("-c", "2048"), ("-c", "2048", "-np", "2")], ids=" ".join)
def test_a_model_whose_heads_share_one_vector(words: Sequence[str], tmp_path: Path) -> None:
    server = require("genuine-llama-server")
    agrees(server, compressed(tmp_path / "m.gguf"), words)
