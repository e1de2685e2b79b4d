"""Diagnoses, on what engines printed: captured logs, single lines, and a real llama-server.

`logs/ENGINE-CODE.log` were written by the engines themselves (vLLM 0.32.0 on CPU, mlx-lm 0.32.2,
SGLang 0.5.23, TabbyAPI of August 2026), with paths made plain; `logs/ENGINE-well.log` are of
starts that went well. The lines below come from the engines' sources and published reports, where
no machine at hand can make the engine say them.
"""

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contracts.engine import EngineId
from supervisor.engines.diagnosis import EVIDENCE_CHARS, MISLEADING, diagnose, is_doomed
from supervisor.engines.signatures import CAUSES, CONSEQUENCES, Signature
from tests.parts.real_llama import require, tiny_gguf

LOGS = Path(__file__).parent / "logs"

CAPTURED: dict[str, tuple[EngineId, str, str]] = {
    "vllm-bad-flag": ("vllm", "bad-flag", "--no-such-flag"),
    "vllm-port-in-use": ("vllm", "port-in-use", "[Errno 98]"),
    "vllm-model-missing": ("vllm", "model-missing", "/nonexistent/model"),
    "vllm-model-corrupt": ("vllm", "model-corrupt", "SafetensorError"),
    "vllm-engine-died": ("vllm", "engine-died", "EngineDeadError"),
    "sglang-dependency-missing": ("sglang", "dependency-missing", "sgl_kernel"),
    "mlx-bad-flag": ("mlx", "bad-flag", "--no-such"),
    "mlx-port-in-use": ("mlx", "port-in-use", "[Errno 98]"),
    "mlx-model-missing": ("mlx", "model-missing", "/nonexistent/model"),
    "mlx-model-corrupt": ("mlx", "model-corrupt", "lm_head.weight"),
    "mlx-gated-download": ("mlx", "gated-download", "LocalEntryNotFoundError"),
    "exllamav3-port-in-use": ("exllamav3", "port-in-use", "58628 are in use"),
    "exllamav3-port-moved": ("exllamav3", "port-in-use", "Switching"),
    "exllamav3-model-missing": ("exllamav3", "model-missing", "config.json"),
    "exllamav3-no-device": ("exllamav3", "no-device", "CUDA_HOME"),
}

GENERIC: dict[EngineId, str] = {
    "vllm": "RuntimeError: Engine core initialization failed. See root cause above.",
    "sglang": "[2026-11-30 19:48:27] kill_process_tree called: parent_pid=22133",
    "llamacpp": "0.00.009.563 E srv  llama_server: exiting due to model loading error",
    "mlx": '127.0.0.1 - - [30/Nov/2026 19:41:31] "GET /health HTTP/1.1" 503 -',
    "exllamav3": "2026-11-30 19:56:37.000 ERROR:    Exiting.",
}
"""What comes after a cause, and tells none."""

_HF = "OSError: "
PRINTED: tuple[tuple[EngineId, str, str], ...] = (
    ("llamacpp", "bad-flag", "error: invalid argument: --no-such-flag"),
    (
        "llamacpp",
        "bad-flag",
        "0.00.001.976 E srv  init_listene: the server is built without SSL support",
    ),
    ("llamacpp", "bad-flag", "std::runtime_error: Unknown reasoning format: qwen3"),
    (
        "llamacpp",
        "port-in-use",
        "0.00.006.233 E srv         start: couldn't bind HTTP server socket, "
        "hostname: 127.0.0.1, port: 45037",
    ),
    (
        "llamacpp",
        "model-missing",
        "0.00.009.003 E gguf_init_from_file: failed to open GGUF file "
        "'/nonexistent/model.gguf' (No such file or directory)",
    ),
    (
        "llamacpp",
        "model-corrupt",
        "0.00.011.060 E gguf_init_from_reader: invalid magic characters: '??o?', expected 'GGUF'",
    ),
    (
        "llamacpp",
        "unsupported-architecture",
        "llama_model_load: error loading model: unknown model architecture: 'nonesuch'",
    ),
    (
        "llamacpp",
        "out-of-memory",
        "0.01.392.020 E llama_init_from_model: failed to initialize the context: "
        "failed to allocate buffer for kv cache",
    ),
    ("llamacpp", "bad-device", "0.00.4 E ggml_cuda: failed to initialize CUDA: no driver"),
    ("llamacpp", "flash-attention", "llama_init: quantized V cache requires flash_attn"),
    ("llamacpp", "gated-download", "E common: failed to download model from the hub"),
    ("llamacpp", "wrong-cpu", "AMX is not ready to be used!"),
    (
        "vllm",
        "out-of-memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a "
        "total capacity of 79.10 GiB of which 1.02 GiB is free.",
    ),
    (
        "vllm",
        "out-of-memory",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy "
        "requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization`",
    ),
    ("sglang", "out-of-memory", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate"),
    (
        "vllm",
        "kv-cache-too-small",
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 "
        "GiB KV cache is needed, which is larger than the available KV cache memory (7.52 GiB).",
    ),
    (
        "vllm",
        "kv-cache-too-small",
        "ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine.",
    ),
    (
        "sglang",
        "kv-cache-too-small",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. ",
    ),
    (
        "vllm",
        "memory-taken",
        "ValueError: Free memory on device (3.2/79.1 GiB) on startup is less than desired GPU "
        "memory utilization (0.92, 72.8 GiB).",
    ),
    (
        "vllm",
        "unsupported-architecture",
        "ValueError: Model architectures ['NoneForCausalLM'] are not supported for now.",
    ),
    (
        "sglang",
        "unsupported-architecture",
        "ValueError: Model architectures ['NoneForCausalLM'] are not supported for now. "
        "Supported architectures: dict_keys([...])",
    ),
    ("mlx", "unsupported-architecture", "ValueError: Model type nonesuch not supported."),
    ("exllamav3", "unsupported-architecture", "ValueError: Unknown architecture in config.json"),
    (
        "vllm",
        "unknown-parser",
        "KeyError: 'invalid tool call parser: nope (chose from { hermes,mistral })'",
    ),
    ("vllm", "bad-flag", "ValueError: Invalid kv_cache_dtype: fp9"),
    ("vllm", "bad-flag", "TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser"),
    (
        "sglang",
        "bad-flag",
        "launch_server.py: error: argument --kv-cache-dtype: invalid choice: 'fp8' "
        "(choose from 'auto', 'fp8_e5m2')",
    ),
    ("sglang", "bad-flag", "launch_server.py: error: ambiguous option: --pp could match --pp-size"),
    ("mlx", "bad-flag", "mlx_lm.server: error: argument --port: invalid int value: 'x'"),
    ("exllamav3", "bad-flag", "main.py: error: argument --disable-auth: expected one argument"),
    (
        "exllamav3",
        "bad-flag",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for TabbyConfigModel",
    ),
    (
        "vllm",
        "start-timeout",
        "TimeoutError: Timed out waiting for engine core processes to start. This is often caused "
        "by slow weight loading",
    ),
    (
        "sglang",
        "port-in-use",
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): "
        "address already in use",
    ),
    (
        "vllm",
        "program-missing",
        "[FATAL tini (7)] exec /no/such failed: No such file or directory",
    ),
    (
        "llamacpp",
        "program-missing",
        "ERROR (catatonit:2): failed to exec pid1: No such file or directory",
    ),
    ("vllm", "device-withdrawn", "Failed to initialize NVML: Unknown Error"),  # DKR-5
    ("vllm", "no-device", "RuntimeError: Failed to infer device type"),
    ("vllm", "no-device", "RuntimeError: Found no NVIDIA driver on your system."),
    ("sglang", "no-device", "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU) is available."),
    (
        "exllamav3",
        "no-device",
        "Unable to run ExllamaV3 because an unsupported GPU is found",
    ),
    (
        "vllm",
        "nccl",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:77, "
        "unhandled cuda error, NCCL version 2.27.5",
    ),
    (
        "vllm",
        "gated-download",
        _HF + "You are trying to access a gated repo. Make sure to have access to it at the hub.",
    ),
    ("mlx", "gated-download", "requests.HTTPError: 401 Client Error: Unauthorized for url"),
    (
        "vllm",
        "trust-remote-code",
        "ValueError: The repository /models/m contains custom code which must be executed to "
        "correctly load the model.",
    ),
    ("sglang", "tokenizer", _HF + "Can't load tokenizer for '/models/m'."),
    (
        "sglang",
        "model-missing",
        _HF + "/models/m does not appear to have a file named config.json.",
    ),
    ("mlx", "out-of-memory", "[METAL] Command buffer execution failed: Insufficient Memory"),
    ("exllamav3", "out-of-memory", "RuntimeError: Insufficient VRAM in split for model and cache"),
    (
        "exllamav3",
        "dependency-missing",
        "2026-11-30 ERROR:    Inference dependencies for TabbyAPI are not installed.",
    ),
    ("sglang", "engine-died", "[2026-11-30 19:48:27] Received sigquit from a child process. It "),
    ("sglang", "warmup-failed", "[2026-11-30 19:48:27] Initialization failed. warmup error: Trace"),
    (
        "mlx",
        "engine-died",
        "2026-11-30 19:41:12,531 - ERROR - mlx_lm.server generation thread died: of no known cause",
    ),
)


def captured(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


def rows() -> Iterator[tuple[EngineId, Signature]]:
    for table in (CAUSES, CONSEQUENCES):
        for engine, of_engine in table.items():
            yield from ((engine, row) for row in of_engine)


def test_every_row_has_a_line_of_some_engine() -> None:
    lines = [(code, line) for _, code, line in PRINTED]
    lines += [(code, captured(name)) for name, (_, code, _) in CAPTURED.items()]
    for _, row in rows():
        assert any(code == row.code and row.pattern.search(line) for code, line in lines), row


@pytest.mark.parametrize("name", CAPTURED)
def test_what_an_engine_printed_when_it_failed(name: str) -> None:
    engine, code, evidence = CAPTURED[name]
    found = diagnose(engine, captured(name))
    assert found is not None
    assert found.code == code
    assert evidence in found.evidence


@pytest.mark.parametrize(("engine", "code", "line"), PRINTED)
def test_a_line_is_recognised_before_the_generic_one(
    engine: EngineId, code: str, line: str
) -> None:
    found = diagnose(engine, f"starting\n{line}\n{GENERIC[engine]}\n")
    assert found is not None
    assert found.code == code
    assert found.evidence == line.strip()[:EVIDENCE_CHARS]
    assert found.summary
    assert found.hint


@pytest.mark.parametrize("engine", ["vllm", "llamacpp", "mlx", "exllamav3"])
def test_an_engine_that_does_well_is_not_diagnosed(engine: EngineId) -> None:
    log = captured(f"{engine}-well")
    assert diagnose(engine, log) is None
    assert not any(is_doomed(engine, line) for line in log.splitlines())


def test_the_last_root_cause_wins() -> None:
    bind = "OSError: [Errno 98] Address already in use"
    memory = "torch.OutOfMemoryError: CUDA out of memory."
    for first, last, code in ((bind, memory, "out-of-memory"), (memory, bind, "port-in-use")):
        found = diagnose("vllm", f"{first}\n{last}\n{GENERIC['vllm']}\n")
        assert found is not None
        assert found.code == code


def test_a_cause_outranks_what_follows_from_it() -> None:
    died = "Received sigquit from a child process. It usually means the child failed."
    found = diagnose("sglang", f"torch.OutOfMemoryError: CUDA out of memory.\n{died}\n")
    assert found is not None
    assert found.code == "out-of-memory"


@pytest.mark.parametrize("tail", ["", *GENERIC.values(), "listening\n", "\0\ufffd\n"])
def test_what_no_row_knows_stays_unknown(tail: str) -> None:
    assert all(diagnose(engine, tail) is None for engine in GENERIC)


@pytest.mark.parametrize("engine", list(GENERIC))
def test_a_line_that_nobody_would_write_costs_no_time(engine: EngineId) -> None:
    """A search holds up the whole daemon, so no text may make one long."""
    starts = {row.pattern.pattern.split(".{")[0] for of, row in rows() if of == engine}
    began = time.monotonic()
    for start in ("error: argument ", "failed to open GGUF file ", *sorted(starts)):
        assert diagnose(engine, start * (256_000 // len(start))) is None or start
    assert (time.monotonic() - began) / (len(starts) + 2) < 0.5


def test_no_row_repeats_without_a_bound() -> None:
    for _, row in rows():
        assert not re.search(r"(?<!\\)[*+]|\{\d+,\}", row.pattern.pattern), row


# The exit


@pytest.mark.parametrize("name", ["vllm-engine-died", "exllamav3-port-in-use"])
def test_an_exit_with_0_that_is_none_is_explained(name: str) -> None:
    engine, cause, _ = CAPTURED[name]
    found = diagnose(engine, captured(name), exit_code=0)
    assert found is not None
    assert found.code == cause
    assert MISLEADING[engine, 0] in found.summary


def test_sglang_ends_itself_by_the_signal_of_the_oom_killer() -> None:
    log = "Received sigquit from a child process. It usually means the child failed.\n"
    found = diagnose("sglang", log, signal="SIGKILL")
    assert found is not None
    assert "need not be the kernel's OOM killer" in found.summary
    assert diagnose("sglang", log, exit_code=137, signal="SIGKILL") == found  # in a container
    assert diagnose("sglang", "loading\n", signal="SIGKILL") is None


def test_an_honest_exit_needs_no_word() -> None:
    found = diagnose("vllm", captured("vllm-bad-flag"), exit_code=2)
    plain = diagnose("vllm", captured("vllm-bad-flag"))
    assert found == plain
    assert diagnose("vllm", "", exit_code=0) is None


@pytest.mark.parametrize("engine", list(GENERIC))
def test_an_illegal_instruction_tells_by_itself(engine: EngineId) -> None:
    """A vLLM built for AVX-512 dies so with an empty log, after 75 s (measured)."""
    found = diagnose(engine, "", signal="SIGILL")
    assert found is not None
    assert (found.code, found.evidence) == ("wrong-cpu", "ended by SIGILL")


# Engines that stay


@pytest.mark.parametrize(
    ("name", "doomed"),
    [
        ("mlx-model-corrupt", True),
        ("mlx-model-missing", True),
        ("mlx-gated-download", True),
        ("mlx-port-in-use", True),
        ("exllamav3-port-moved", True),
        ("mlx-bad-flag", False),  # ends by itself
        ("exllamav3-port-in-use", False),
        ("vllm-engine-died", False),
    ],
)
def test_an_engine_that_will_never_be_ready_and_stays(name: str, doomed: bool) -> None:
    engine, _, _ = CAPTURED[name]
    assert any(is_doomed(engine, line) for line in captured(name).splitlines()) == doomed


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
