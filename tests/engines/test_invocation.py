"""Which command lines are engines, and what they say (PID-4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.engines import invocation
from supervisor.engines.invocation import (
    detect_engine,
    extract_model_path,
    extract_port,
    extract_served_model_name,
    to_engine_backend,
)

STRANGERS = (
    # From the case itself.
    "/home/vllm/bin/python app.py",
    "vim /src/vllm/serve.py",
    "grep vllm serve",
    "pip install vllm",
    "tail -f vllm serve.log",
    "VLLM::EngineCore",
    # And from what engines and people start beside servers.
    "vllm bench serve --model M",
    "vllm --version",
    "vllm",
    "/opt/v/bin/python /opt/v/bin/vllm bench serve",
    "python -m vllm.entrypoints.cli.main bench serve",
    "python -m sglang.bench_serving --model M",
    "sglang version",
    "sglang::scheduler_TP0",
    "VLLM::Worker_TP0",
    "python -c vllm.serve",
    "python -m pip install sglang",
    "python -B -c multiprocessing.resource_tracker vllm serve",
    "python3 /home/vllm/serve.py serve",
    "bash -c llama-server",
    "/usr/bin/code --folder /src/llama-server",
    "journalctl -u llama-server",
    "mlx_lm.generate --model M",
    "python -m mlx_lm generate --model M",
    "llama cli -m a.gguf",
    "python main.py --model-name bert",
    "python /src/trainer/main.py --model-dir /models",
    "sudo -u vllm vllm serve M",
    "",
    "python",
    "python -m",
)


@pytest.mark.parametrize("line", STRANGERS)
def test_no_stranger_is_taken_for_an_engine(line: str) -> None:
    assert detect_engine(line.split()) is None


@pytest.mark.parametrize(
    ("line", "engine", "model", "name", "port"),
    [
        ("/opt/v/bin/python /opt/v/bin/vllm serve M", "vllm", "M", None, 8000),
        ("vllm serve M --served-model-name a b --port 1", "vllm", "M", "a", 1),
        ("vllm serve --model=M --served_model_name=n", "vllm", "M", "n", 8000),
        (
            "python3 -m vllm.entrypoints.openai.api_server --model=M --port=9",
            "vllm", "M", None, 9,
        ),
        ("python3.12 -Im vllm.entrypoints.cli.main serve M", "vllm", "M", None, 8000),
        ("python -m sglang.launch_server --model-path M", "sglang", "M", None, 30000),
        ("sglang serve M --served-model-name n", "sglang", "M", "n", 30000),
        ("sglang serve --model-path=M --port=7", "sglang", "M", None, 7),
        ("llama-server -m a.gguf", "llamacpp", "a.gguf", None, 8080),
        ("/x/llama-server.real --model a.gguf", "llamacpp", "a.gguf", None, 8080),
        ("llama-server --model=a.gguf -a n,o", "llamacpp", "a.gguf", "n", 8080),
        ("llama-server -hf u/r:Q4 --alias=n --port 3", "llamacpp", "u/r:Q4", "n", 3),
        ("/v/bin/python -I /v/libexec/llama-server -m b", "llamacpp", "b", None, 8080),
        ("llama server -m a.gguf", "llamacpp", "a.gguf", None, 8080),
        ("llama-server", "llamacpp", None, None, 8080),
        ("python -m mlx_lm.server --model M", "mlx", "M", None, 8080),
        ("python -W ignore -X dev -u -m mlx_lm server --model=M", "mlx", "M", None, 8080),
        ("/v/bin/python /v/bin/mlx_lm.server --model M --port 2", "mlx", "M", None, 2),
        ("mlx_lm server", "mlx", None, None, 8080),
        (
            "python main.py --model-dir /models --model-name q --port 4",
            "exllamav3", "/models/q", "q", 4,
        ),
        ("python3 /opt/tabbyAPI/main.py", "exllamav3", None, None, 5000),
    ],
)  # fmt: skip
def test_a_server_is_recognised_and_understood(
    line: str, engine: EngineId, model: str | None, name: str | None, port: int
) -> None:
    argv = line.split()
    assert detect_engine(argv) == engine
    assert extract_model_path(engine, argv) == model
    assert extract_served_model_name(engine, argv) == name
    assert extract_port(engine, argv, {}) == port


def test_the_last_of_a_repeated_flag_counts_and_a_flag_is_no_value() -> None:
    argv = ["llama-server", "-m", "a", "-m", "b", "--alias", "--port", "5"]
    assert extract_model_path("llamacpp", argv) == "b"
    assert extract_served_model_name("llamacpp", argv) is None


def test_a_variable_tells_the_port_where_the_command_line_is_silent() -> None:
    env = {"LLAMA_ARG_PORT": "91"}
    assert extract_port("llamacpp", ["llama-server"], env) == 91
    assert extract_port("llamacpp", ["llama-server", "--port", "92"], env) == 92
    assert extract_port("llamacpp", ["llama-server", "--port", "x"], env) is None


def test_nothing_is_extracted_from_another_engine() -> None:
    argv = ["vllm", "serve", "M"]
    assert extract_model_path("sglang", argv) is None
    assert extract_served_model_name("llamacpp", argv) is None


def test_every_engine_has_its_rules() -> None:
    assert tuple(invocation.INVOCATIONS) == ENGINE_IDS


def test_the_backends_are_all_but_exllamav3() -> None:
    assert [to_engine_backend(engine) for engine in ENGINE_IDS] == [
        "vllm", "sglang", "llamacpp", "mlx", None,
    ]  # fmt: skip


WORDS = st.sampled_from(
    [
        "python",
        "-m",
        "-c",
        "-X",
        "vllm",
        "serve",
        "--model",
        "--model=",
        "-",
        "--",
        "=",
        "",
        "main.py",
    ]
)


@given(st.lists(WORDS | st.text(max_size=8), max_size=7))
def test_any_words_have_an_answer(argv: list[str]) -> None:
    engine = detect_engine(argv)
    for each in ENGINE_IDS:
        extract_model_path(each, argv)
        extract_served_model_name(each, argv)
        extract_port(each, argv, {})
    assert engine is None or invocation.detect_invocation(engine, argv)
