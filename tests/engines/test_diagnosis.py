"""Diagnoses: each row on a line that llama-server b11434 printed, and on the real server itself."""

import subprocess
from pathlib import Path

import pytest

from supervisor.engines.diagnosis import SIGNATURES, diagnose
from tests.parts.real_llama import require, tiny_gguf

GENERIC = "0.00.009.563 E srv  llama_server: exiting due to model loading error\n"

PRINTED = {
    "bad-flag": "error: invalid argument: --no-such-flag",
    "port-in-use": "0.00.006.233 E srv         start: couldn't bind HTTP server socket, "
    "hostname: 127.0.0.1, port: 45037",
    "model-missing": "0.00.009.003 E gguf_init_from_file: failed to open GGUF file "
    "'/nonexistent/model.gguf' (No such file or directory)",
    "model-corrupt": "0.00.011.060 E gguf_init_from_reader: invalid magic characters: '??o?', "
    "expected 'GGUF'",
    "unsupported-architecture": "llama_model_load: error loading model: error loading model "
    "architecture: unknown model architecture: 'nonesuch'",
    "out-of-memory": "0.01.392.020 E llama_init_from_model: failed to initialize the context: "
    "failed to allocate buffer for kv cache",
    "bad-device": 'error while handling argument "--device": invalid device: CUDA0',
    "flash-attention": "llama_init_from_model: quantized V cache requires flash_attn",
    "gated-download": "E common: failed to download model from the hub",
    "wrong-cpu": "AMX is not ready to be used!",
}


def test_every_row_has_its_line() -> None:
    assert {row.code for row in SIGNATURES["llamacpp"]} == PRINTED.keys()


@pytest.mark.parametrize(
    ("code", "line"), [(c, text) for c, text in PRINTED.items() if c != "bad-device"]
)
def test_a_line_is_recognised_before_the_generic_one(code: str, line: str) -> None:
    found = diagnose("llamacpp", f"0.00.001 I srv: starting\n{line}\n{GENERIC}")
    assert found is not None
    assert found.code == code
    assert found.evidence == line
    assert found.hint


def test_the_last_root_cause_wins() -> None:
    found = diagnose("llamacpp", f"{PRINTED['model-missing']}\n{PRINTED['port-in-use']}\n{GENERIC}")
    assert found is not None
    assert found.code == "port-in-use"


@pytest.mark.parametrize("tail", ["", GENERIC, "0.00 I srv: listening\n", "\0\ufffd\n"])
def test_what_no_row_knows_stays_unknown(tail: str) -> None:
    assert diagnose("llamacpp", tail) is None


def test_an_engine_without_rows_is_never_diagnosed() -> None:
    assert diagnose("vllm", PRINTED["out-of-memory"]) is None


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--no-such-flag"], "bad-flag"),
        (["--port", "notanint"], "bad-flag"),
        (["-m", "/nonexistent/model.gguf"], "model-missing"),
        (["-m", "CORRUPT"], "model-corrupt"),
        (["-m", "TRUNCATED"], "model-corrupt"),
        (["-m", "BEHEADED"], "model-corrupt"),
        (["-m", "TINY", "--host", "203.0.113.1"], "port-in-use"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_the_real_server_is_understood(tmp_path: Path, flags: list[str], code: str) -> None:
    server, tiny = require("genuine-llama-server"), tiny_gguf()
    corrupt, truncated = tmp_path / "corrupt.gguf", tmp_path / "truncated.gguf"
    beheaded = tmp_path / "beheaded.gguf"
    corrupt.write_bytes(b"not a model at all" * 100)
    truncated.write_bytes(tiny.read_bytes()[:-200_000])
    beheaded.write_bytes(tiny.read_bytes()[:3_000])
    names = {
        "CORRUPT": str(corrupt),
        "TRUNCATED": str(truncated),
        "BEHEADED": str(beheaded),
        "TINY": str(tiny),
    }
    argv = [str(server), *(names.get(flag, flag) for flag in flags)]
    ended = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=60, check=False
    )
    assert ended.returncode == 1
    found = diagnose("llamacpp", ended.stdout + ended.stderr)
    assert found is not None
    assert found.code == code
