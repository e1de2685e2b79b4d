"""The mechanism with the rows of another kind of engine: argparse, as vLLM and SGLang have it."""

import pytest

from supervisor.contracts.engine import HealthCheck
from supervisor.engines.container import Container
from supervisor.engines.plan import Rows
from supervisor.engines.spelling import (
    MANY,
    Answer,
    Ask,
    Flag,
    Grammar,
    Lacks,
    Row,
    Says,
    Spelling,
    Word,
)
from tests.engines.requests import request


def _fp8(dtype: str, _: Ask) -> Answer:
    return "fp8_e4m3" if dtype == "fp8" else dtype


def _flag(*names: str, **more: object) -> Row:
    return Says((Word(Flag(names, **more)),))  # type: ignore[arg-type]


AUTO_CHOICE = Flag(
    ("--enable-auto-tool-choice",),
    takes=0,
    negations=("--no-enable-auto-tool-choice", "--disable-auto-tool-choice"),
)

ROWS = Rows(
    spelling=Spelling(
        program="serve",
        grammar=Grammar(equals=True, underscores=True, prefixes=True),
        model=Says((Word(Flag(("", "--model"))),)),
        host=Flag(("--host",)),
        port=Flag(("--port",)),
        name=Says((Word(Flag(("--served-model-name",), takes=MANY)),)),
        knobs={
            "tensor_parallel": _flag("--tensor-parallel-size", "-tp"),
            "pipeline_parallel": _flag("--pipeline-parallel-size", "-pp"),
            "max_context_length": _flag("--max-model-len"),
            "memory_fraction": _flag("--gpu-memory-utilization", "--device-memory-utilization"),
            "max_concurrent_requests": _flag("--max-num-seqs"),
            "kv_cache_dtype": Says((Word(Flag(("--kv-cache-dtype",)), _fp8),)),
            "dtype": _flag("--dtype"),
            "quantization": _flag("--quantization", "-q"),
            "trust_remote_code": _flag(
                "--trust-remote-code", takes=0, negations=("--no-trust-remote-code",)
            ),
            "tool_call_parser": Says(
                (Word(Flag(("--tool-call-parser",))),), (Word(AUTO_CHOICE),), auto=True
            ),
            "reasoning_parser": Lacks("it has none"),
        },
    ),
    health=HealthCheck(path="/health", ready_deadline_ms=1, interval_ms=1),
    container=Container(
        image=lambda host: f"serve:{host.accelerator}",
        port=8000,
        shm_bytes=1 << 30,
        ulimits={"memlock": -1},
    ),
    command=("serve",),
    env={"VLLM_ENGINE_READY_TIMEOUT_S": "1200"},
)


def words(*extra: str, **options: object) -> list[str]:
    """What is planned behind the fixed beginning, which is checked here once and for all."""
    argv = list(ROWS.plan(request(options=options, extraArgs=extra)).argv)
    head = ["/usr/bin/llama-server", "serve", "/models/tiny.gguf", "--host", "127.0.0.1"]
    head += ["--port", "21000", "--served-model-name", "tiny"]
    assert argv[: len(head)] == head
    return argv[len(head) :]


def test_a_knob_is_one_row() -> None:
    assert words(tensorParallel=2, trustRemoteCode=True, kvCacheDtype="fp8") == [
        *("--tensor-parallel-size", "2", "--kv-cache-dtype", "fp8_e4m3", "--trust-remote-code"),
    ]


def test_the_users_spelling_is_kept() -> None:
    extra = ("--max-model-len=4096", "-tp=2", "--enforce_eager")
    assert words(*extra, maxContextLength=1, tensorParallel=4) == list(extra)


@pytest.mark.parametrize(
    "extra",
    [
        ("--tensor-parallel-size", "4"),
        ("--tensor_parallel_size=4",),
        ("-tp", "4"),
        ("-tp=4",),
        ("--tensor-par", "4"),
    ],
)
def test_aliases_underscores_and_beginnings_override(extra: tuple[str, ...]) -> None:
    assert words(*extra, tensorParallel=2) == list(extra)


@pytest.mark.parametrize("extra", ["--no-trust-remote-code", "--no_trust_remote_code"])
def test_a_negation_overrides(extra: str) -> None:
    assert words(extra, trustRemoteCode=True) == [extra]


def test_a_companion_comes_once_and_goes_with_its_flag() -> None:
    both = ["--tool-call-parser", "hermes", "--enable-auto-tool-choice"]
    assert words(toolCallParser="hermes") == both
    assert words("--enable-auto-tool-choice", toolCallParser="hermes") == both
    assert words("--disable-auto-tool-choice", toolCallParser="hermes") == [
        *("--tool-call-parser", "hermes", "--disable-auto-tool-choice"),
    ]
    own = ("--tool-call-parser", "mistral")
    assert words(*own, toolCallParser="hermes") == list(own)


def test_auto_is_a_word_only_where_the_engine_has_it() -> None:
    assert words(dtype="auto", toolCallParser="auto") == [
        *("--tool-call-parser", "auto", "--enable-auto-tool-choice"),
    ]


def test_a_value_that_looks_like_a_flag_is_glued_where_argparse_would_take_it_for_one() -> None:
    assert words(quantization="-x") == ["--quantization=-x"]


def test_many_values_run_to_the_next_flag_and_are_overridden_together() -> None:
    extra = ["--served-model-name", "a", "b", "--seed", "-1"]
    argv = list(ROWS.plan(request(extraArgs=extra)).argv)
    assert argv[-5:] == extra
    assert argv.count("--served-model-name") == 1
    assert "tiny" not in argv


def test_a_positional_model_gives_way_to_its_flag() -> None:
    argv = list(ROWS.plan(request(extraArgs=["--model", "/other"])).argv)
    assert "/models/tiny.gguf" not in argv
    assert argv[-2:] == ["--model", "/other"]


def test_a_container_has_its_own_head_its_limits_and_the_models_folder_alone() -> None:
    plan = ROWS.plan(request(runtime="docker", modelPath="/hf/qwen/"))
    assert plan.argv[0] == "/models/qwen"
    assert (plan.image, plan.shm_bytes, plan.ulimits) == ("serve:cuda", 1 << 30, {"memlock": -1})
    (mount,) = plan.mounts
    assert (mount.from_, mount.to) == ("/hf/qwen", "/models/qwen")


def test_a_launchs_variables_beat_the_engines() -> None:
    name = "VLLM_ENGINE_READY_TIMEOUT_S"
    assert ROWS.plan(request()).env == {name: "1200"}
    assert ROWS.plan(request(env={name: "5"})).env == {name: "5"}
