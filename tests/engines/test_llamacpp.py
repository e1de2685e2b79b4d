"""llama-server's plans: against the golden files, and by rules that need no golden file."""

from pathlib import Path
from typing import Any

import pytest

from supervisor.engines.llamacpp import SPEC
from tests.engines import golden
from tests.engines.requests import GPU_A, argv, host, request

CASES = golden.cases("llamacpp")


def value_of(words: list[str], flag: str) -> str:
    assert words.count(flag) == 1, (flag, words)
    return words[words.index(flag) + 1]


def test_there_are_golden_files() -> None:
    assert len(CASES) >= 20


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_no_flag_is_glued_to_its_value(path: Path) -> None:
    for word in argv(request(**golden.given(path))):
        assert not (word.startswith("--") and "=" in word)
        assert not word.startswith(("--ctx-size ", "-b "))


@pytest.mark.parametrize(
    ("options", "extra_args", "env", "context", "slots"),
    [
        ({"maxContextLength": 4096}, [], {}, "4096", None),
        ({"maxContextLength": 4096, "maxConcurrentRequests": 1}, [], {}, "4096", "1"),
        ({"maxContextLength": 4096, "maxConcurrentRequests": 3}, [], {}, "12288", "3"),
        ({"maxConcurrentRequests": 3}, [], {}, None, "3"),
        ({"maxContextLength": 4096}, ["-np", "2"], {}, "8192", "2"),
        ({"maxContextLength": 4096, "maxConcurrentRequests": 9}, ["-np", "2"], {}, "8192", "2"),
        ({"maxContextLength": 4096}, ["-np", "-1"], {}, "4096", "-1"),
        ({"maxContextLength": 4096}, [], {"LLAMA_ARG_N_PARALLEL": "2"}, "8192", None),
        (
            {"maxContextLength": 4096, "maxConcurrentRequests": 3},
            [],
            {"LLAMA_ARG_N_PARALLEL": "2"},  # the flag that we write beats it
            "12288",
            "3",
        ),
    ],
)
def test_context_is_what_one_request_may_span_times_the_slots(
    options: dict[str, Any],
    extra_args: list[str],
    env: dict[str, str],
    context: str | None,
    slots: str | None,
) -> None:
    words = argv(request(options=options, extraArgs=extra_args, env=env))
    assert (value_of(words, "-c") if "-c" in words else None) == context
    assert (value_of(words, "-np") if "-np" in words else None) == slots


def test_it_never_runs_without_a_model_which_would_be_router_mode() -> None:
    for path in CASES:
        words = list(SPEC.plan(request(**golden.given(path))).argv)
        assert sum(word in ("-m", "--model") for word in words) == 1, path


@pytest.mark.parametrize(
    "model",
    ["/a b/'\".gguf", "/x/$HOME %s `id`.gguf", "/line\nbreak.gguf", "/-m.gguf", "/" + "é😀" * 100],
)
def test_a_model_path_passes_byte_for_byte(model: str) -> None:
    """ARG-3."""
    assert value_of(argv(request(modelPath=model)), "-m") == model


def test_defaults_of_the_engine_are_left_to_the_engine() -> None:
    assert argv(request()) == [
        *("-m", "/models/tiny.gguf", "--host", "127.0.0.1", "--port", "21000"),
        *("-a", "tiny", "--metrics"),
    ]


def test_an_empty_name_is_no_name() -> None:
    assert "-a" not in argv(request(servedModelName=""))


@pytest.mark.parametrize(
    ("given", "said"), [("f16", "f16"), ("Float16", "f16"), ("half", "f16"), ("Q8_0", "q8_0")]
)
def test_cache_types_are_said_in_ggml_words(given: str, said: str) -> None:
    words = argv(request(options={"kvCacheDtype": given}))
    assert value_of(words, "-ctk") == value_of(words, "-ctv") == said


@pytest.mark.parametrize(
    ("options", "knob"),
    [
        ({"tensorParallel": 2}, "tensorParallel"),
        ({"pipelineParallel": 2}, "pipelineParallel"),
        ({"memoryFraction": 0.5}, "memoryFraction"),
        ({"kvCacheDtype": "fp8"}, "kvCacheDtype"),
        ({"dtype": "half"}, "dtype"),
        ({"quantization": "awq"}, "quantization"),
        ({"trustRemoteCode": True}, "trustRemoteCode"),
        ({"toolCallParser": "hermes"}, "toolCallParser"),
        ({"reasoningParser": "qwen3"}, "reasoningParser"),
    ],
)
def test_what_it_has_no_word_for_is_dropped_with_a_reason(
    options: dict[str, Any], knob: str
) -> None:
    launch = request(options=options)
    assert argv(launch) == argv(request())
    (reason,) = SPEC.explain(launch).dropped
    assert reason.startswith(f"{knob}: ")
    assert len(reason) > len(knob) + 10


def test_a_container_listens_on_its_images_port_and_is_published_on_ours() -> None:
    plan = SPEC.plan(request(runtime="docker", extraArgs=["--port", "19090"]))
    words = list(plan.argv)
    assert value_of(words, "--host") == "0.0.0.0"
    assert value_of(words, "--port") == "8080"
    assert [(port.container, port.host) for port in plan.ports] == [(8080, 19090)]
    assert plan.bind_host == "127.0.0.1"


def test_a_container_sees_the_models_folder_but_never_all_files_of_the_host() -> None:
    (mount,) = SPEC.plan(request(runtime="docker", modelPath="/d/m-1-of-2.gguf")).mounts
    assert (mount.from_, mount.to, mount.read_only) == ("/d", "/models", True)
    (mount,) = SPEC.plan(request(runtime="docker", modelPath="/m.gguf")).mounts
    assert (mount.from_, mount.to, mount.read_only) == ("/m.gguf", "/models/m.gguf", True)


@pytest.mark.parametrize(
    ("facts", "tag"),
    [
        ({}, "server-cuda"),
        ({"arch": "arm64", "unifiedMemory": True}, "server-cuda13"),
        ({"accelerator": "rocm"}, "server-rocm"),
        ({"accelerator": "xpu"}, "server-intel"),
        ({"accelerator": "cpu"}, "server"),
        ({"accelerator": "cpu", "arch": "arm64"}, "server"),
    ],
)
def test_its_image(facts: dict[str, Any], tag: str) -> None:
    assert SPEC.image is not None
    assert SPEC.image(host(**facts)) == f"ghcr.io/ggml-org/llama.cpp:{tag}"


def test_metal_has_no_image() -> None:
    assert SPEC.image is not None
    assert SPEC.image(host(accelerator="metal")) is None


def test_its_health_and_its_way_to_stop() -> None:
    assert (SPEC.health.path, SPEC.health.ready_deadline_ms) == ("/health", 300_000)
    assert SPEC.stop.second_term_after_ms is not None
    assert SPEC.stop.second_term_after_ms < SPEC.stop.grace_ms


def test_its_metrics_are_those_that_the_server_was_seen_to_serve() -> None:
    assert SPEC.metrics["requestsRunning"] == ("llamacpp:requests_processing",)
    assert SPEC.metrics["requestsWaiting"] == ("llamacpp:requests_deferred",)
    assert SPEC.metrics["promptTokensTotal"] == ("llamacpp:prompt_tokens_total",)
    assert SPEC.metrics["generationTokensTotal"] == ("llamacpp:tokens_predicted_total",)


def test_the_plan_keeps_what_it_does_not_decide() -> None:
    launch = request(env={"HF_TOKEN": "x"})
    plan = SPEC.plan(launch)
    assert plan.devices == (GPU_A,)
    assert plan.env == {"HF_TOKEN": "x"}
    assert plan.argv[0] == launch.binary
