"""What engines are told about memory, in the words of their command lines (see ``memory.py``)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.contracts.model import Serving
from supervisor.engines.memory import serving_of


def said(engine: EngineId, line: str, **env: str) -> Serving:
    return serving_of(engine, ["/bin/engine", *line.split()], env)


def test_llama_servers_own_defaults() -> None:
    """Four slots that share one cache of the model's own length, in f16 (its log and --help)."""
    its = said("llamacpp", "-m /m.gguf")
    assert (its.context, its.slots, its.pooled, its.shrinks) == (None, 4, True, True)
    assert (its.key_type, its.value_type, its.micro_batch) == ("f16", "f16", 512)


@pytest.mark.parametrize(
    ("line", "context", "slots", "pooled"),
    [
        ("-c 1000 -np 3", 1000, 3, False),
        ("--ctx-size 1000 --parallel 3 -kvu", 1000, 3, True),
        ("--ctx_size 1000 -np 3 --kv-unified --no-kv-unified", 1000, 3, False),
        ("-c 1000 -np -1", 1000, 4, True),
        ("-c 0", None, 4, True),
        ("--kv-unified-per-slot 512 -np 2 -kvu", 1024, 2, True),
        ("-c 1000 -c 2000", 2000, 4, True),
    ],
)
def test_context_and_slots(line: str, context: int | None, slots: int, pooled: bool) -> None:
    its = said("llamacpp", line)
    assert (its.context, its.slots, its.pooled) == (context, slots, pooled)


def test_llama_variables_speak_where_the_line_is_silent() -> None:
    env = {"LLAMA_ARG_CTX_SIZE": "512", "LLAMA_ARG_N_PARALLEL": "2", "LLAMA_ARG_KV_UNIFIED": "on"}
    its = said("llamacpp", "-np 3", **env)
    assert (its.context, its.slots, its.pooled, its.shrinks) == (512, 3, True, False)


def test_a_context_that_was_named_is_not_shrunk() -> None:
    assert not said("llamacpp", "-c 0").shrinks
    assert not said("llamacpp", "-fit off").shrinks


@pytest.mark.parametrize(
    ("line", "layers", "keeps_back"),
    [
        ("", None, False),
        ("-ngl all", None, False),
        ("--gpu-layers auto", None, False),
        ("-ngl 0", 0, False),
        ("--n-gpu-layers 20 --n-cpu-moe 3", 20, True),
        ("-ot exps=CPU", None, True),
    ],
)
def test_what_stays_in_host_memory(line: str, layers: int | None, keeps_back: bool) -> None:
    its = said("llamacpp", line)
    assert (its.device_layers, its.keeps_back) == (layers, keeps_back)


def test_models_beside() -> None:
    its = said("llamacpp", "--mmproj /p.gguf -md /d.gguf -b 128")
    assert its.beside == ("/p.gguf", "/d.gguf")
    assert its.micro_batch == 128


@pytest.mark.parametrize(
    ("line", "context", "fraction"),
    [
        ("serve /m", None, 0.92),
        ("serve /m --max-model-len 32k", 32_000, 0.92),
        ("serve /m --max-model-len=32K --gpu-memory-utilization=0.5", 32_768, 0.5),
        ("serve /m --max-model-len auto --gpu_memory_utilization 0.5", None, 0.5),
        ("serve /m --gpu-memory-utilization 7", None, 0.92),
    ],
)
def test_vllm(line: str, context: int | None, fraction: float) -> None:
    its = said("vllm", line)
    assert (its.context, its.fraction) == (context, fraction)


def test_vllms_cache_by_size() -> None:
    assert said("vllm", "--kv-cache-memory-bytes 1G").cache_bytes == 1 << 30
    assert said("vllm", "", VLLM_CPU_KVCACHE_SPACE="2").cache_bytes == 2 << 30
    assert said("vllm", "").cache_bytes is None


def test_sglang_mlx_and_tabby() -> None:
    its = said("sglang", "--context-length 4096 --mem-fraction-static 0.7 --kv-cache-dtype fp8")
    assert (its.context, its.fraction, its.key_type) == (4096, 0.7, "fp8")
    assert said("mlx", "--kv-bits 4").key_type == "int4"
    its = said("exllamav3", "--max-seq-len 8192 --cache-size 16384 --cache-mode 8,4")
    assert (its.context, its.key_type, its.value_type) == (16384, "int8", "int4")
    assert said("exllamav3", "").key_type == "float16"
    assert said("exllamav3", "", TABBY_MODEL_CACHE_SIZE="512").context == 512


@given(
    st.sampled_from(ENGINE_IDS),
    st.lists(
        st.sampled_from(["-c", "-np", "--max-model-len", "--cache-mode", "--kv-bits", "-ub"])
        | st.text(max_size=8)
        | st.from_regex(r"[0-9.,-]{1,30}[kKmMgGtT]?", fullmatch=True),
        max_size=8,
    ),
)
def test_it_is_total(engine: EngineId, argv: list[str]) -> None:
    its = serving_of(engine, argv, {"VLLM_CPU_KVCACHE_SPACE": argv[-1] if argv else ""})
    assert its.slots > 0
    assert its.context is None or its.context > 0
