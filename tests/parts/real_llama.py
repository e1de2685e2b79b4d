"""The real engines and models, for tests: their paths, or a skip that says how to get them.

`examples/get_engine.py` puts them in place; nothing here installs or compiles, so a plain
`make test` on a fresh machine stays short. Where `ENGINE_SUPERVISOR_REQUIRE_PARTS` is set, as in
CI, a part that is not there fails the test instead of skipping it.
"""

import os
from pathlib import Path
from typing import Literal

import pytest

from examples import get_engine

Part = Literal["llama-server", "smollm2", "tiny-gguf", "genuine-llama-server", "mlx"]

GET: dict[Part, str] = {
    "llama-server": "python examples/get_engine.py",
    "smollm2": "python examples/get_engine.py",
    "tiny-gguf": "python examples/get_engine.py --tiny",
    "genuine-llama-server": "python examples/get_engine.py --genuine",
    "mlx": "python examples/get_engine.py --mlx",
}


def find(part: Part) -> Path | None:
    """Where `part` is, or None if this machine does not have it."""
    match part:
        case "llama-server":
            path = get_engine.server()
            lacking = get_engine.missing_cpu_flags() or not get_engine.complete(path.parent)
        case "smollm2":
            path = get_engine.model()
            lacking = not get_engine.complete(path.parent)
        case "tiny-gguf":
            path, lacking = get_engine.tiny(), False
        case "genuine-llama-server":
            path = get_engine.genuine()
            lacking = not get_engine.complete(path.parent)
        case "mlx":
            path = get_engine.mlx()
            lacking = not get_engine.complete(path.parent)
    return path if not lacking and path.exists() else None


def require(part: Part) -> Path:
    """Where `part` is; without it the calling test is skipped, or fails in CI."""
    if path := find(part):
        return path
    reason = f"{part} is not here; get it with: {GET[part]}"
    if os.environ.get("ENGINE_SUPERVISOR_REQUIRE_PARTS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def shim_server() -> Path:
    """A `llama-server` that needs no compiler: llama.cpp's own server in a Python process."""
    return require("llama-server")


def smollm2() -> Path:
    """A small instruct model that answers sensibly, given a system prompt."""
    return require("smollm2")


def tiny_gguf() -> Path:
    """A model of half a megabyte that loads at once and answers nonsense; written if need be."""
    if not (path := get_engine.tiny()).exists():
        get_engine.get_tiny()
    return path


def genuine_server() -> Path | None:
    """The `llama-server` compiled from source, or None; `require` it where a test is about it."""
    return find("genuine-llama-server")


def mlx_server() -> Path:
    """MLX's own `mlx_lm.server`, on the processor."""
    return require("mlx")


def tiny_hf() -> Path:
    """The folder of a tiny model in Hugging Face's form; it comes with `mlx_lm.server`."""
    require("mlx")
    return get_engine.tiny_hf()
