"""How many devices a launch's own words ask for, in the spellings that each engine reads.

Expected counts are from the engines' own documentation: vLLM's "Parallelism and Scaling" and
"Data Parallel Deployment" (as many GPUs as tensor x pipeline, times the data-parallel ranks of this
host), SGLang's "Server Arguments" (replicas times tensor x pipeline; attention groups lie inside
tensor parallelism), llama-server's README (one share a device) and TabbyAPI's ``gpu_split``.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from supervisor.contracts.engine import EngineId, ServingOptions
from supervisor.engines.registry import ENGINES
from tests.parsers.asking import ROWS


def asked(
    engine: EngineId,
    *extra_args: str,
    options: ServingOptions | None = None,
    env: dict[str, str] | None = None,
    config: tuple[str, ...] = (),
) -> int | None:
    spec = ENGINES[engine]
    return spec.demand(options or ServingOptions(), extra_args, env or {}, config).devices


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("", 1),
        ("--tensor-parallel-size 4", 4),
        ("--tensor-parallel-size=4", 4),
        ("--tensor_parallel_size 4", 4),
        ("--tensor_parallel_size=4", 4),
        ("--tensor-par 4", 4),
        ("-tp 4", 4),
        ("-tp=4", 4),
        ("-tp 2 -tp 4", 4),
        ("--pipeline-parallel-size 2", 2),
        ("--pipeline_parallel_size=2", 2),
        ("-pp 2", 2),
        ("-tp 4 -pp 2", 8),
        ("--prefill-context-parallel-size 2 -tp 2", 4),
        ("-pcp 2 -tp 2", 4),
        # It takes turns on the devices of tensor parallelism.
        ("-tp 4 --decode-context-parallel-size 2", 4),
        ("-tp 4 --enable-expert-parallel", 4),
        ("--data-parallel-size 4", 4),
        ("--data-parallel-size=4 -tp 2", 8),
        ("--data_parallel_size 4", 4),
        ("-dp 2", 2),
        # "Run DP size 4 with DP ranks 0 and 1 on the head node"
        ("--data-parallel-size 4 --data-parallel-size-local 2", 2),
        ("-dp 4 -dpl 2 -tp 2", 4),
        # "an API server on the head node only"
        ("-dp 4 -dpl 0", 1),
        # "one process per rank", behind a balancer of one's own
        ("--data-parallel-size 2 --data-parallel-rank 0", 1),
        ("-dp 2 -dpn 1 -tp 2", 2),
        ("-dp 2 --data-parallel-external-lb -tp 2", 2),
        # "two nodes with 8 GPUs each": --tensor-parallel-size 8 --pipeline-parallel-size 2
        ("-tp 8 -pp 2 --nnodes 2 --node-rank 0", 8),
        ("-tp 8 -pp 2 -n 2 -r 1", 8),
        ("-dp 4 -tp 2 --nnodes 2", 4),
        # Ray takes them from its cluster.
        ("-tp 8 --distributed-executor-backend ray", None),
        ("-dp 4 --data-parallel-backend=ray", None),
        ("-tp 8 --distributed-executor-backend mp", 8),
        ("-tp +2 -pp 2_0", 40),  # as Python reads a number
        ("-tp many", 1),
        ("-tp", 1),
        ("-tp 0", 1),
    ],
)
def test_vllm(words: str, count: int | None) -> None:
    assert asked("vllm", *words.split()) == count


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_blanks_around_a_number_are_nothing_to_argparse(engine: EngineId) -> None:
    assert asked(engine, "--tensor-parallel-size", " 2") == 2
    assert asked(engine, "--tensor-parallel-size= 2 ") == 2


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("--tp-size 4", 4),
        ("--tp-size=4", 4),
        ("--tp 4", 4),
        ("--tensor-parallel-size 4", 4),
        ("--tensor-parallel-size 4 --tp-size 2", 2),
        ("--pp-size 2 --tp 2", 4),
        ("--pipeline-parallel-size=2", 2),
        ("--dp-size 2", 2),
        ("--dp 2 --tp 2", 4),
        ("--data-parallel-size 2 --tp=2", 4),
        ("--tp 8 --dp 8 --enable-dp-attention", 8),
        ("--tp 8 --attn-dp-size 8", 8),
        ("--tp 8 --ep-size 8", 8),
        ("--tp 16 --nnodes 2 --node-rank 0", 8),
        # SGLang ends at underscores: there is nothing to count.
        ("--tp_size 4", 1),
    ],
)
def test_sglang(words: str, count: int) -> None:
    assert asked("sglang", *words.split()) == count


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("--split-mode row", 1),
        ("-sm layer -mg 0", 1),
        ("--tensor-split 3,1", 2),
        ("-ts 3,1,2", 3),
        ("-ts 3/1", 2),
        ("--tensor_split 3,1", 2),
        ("-dev CUDA0,CUDA1", 2),
        ("--device none", 1),
        ("--tensor-split=3,1", 2),  # cut into two words for llama-server
    ],
)
def test_llamacpp(words: str, count: int) -> None:
    assert asked("llamacpp", *words.split()) == count


def test_llamacpp_by_variables() -> None:
    assert asked("llamacpp", env={"LLAMA_ARG_TENSOR_SPLIT": "1,1,1"}) == 3
    assert asked("llamacpp", "-ts", "1,1", env={"LLAMA_ARG_TENSOR_SPLIT": "1,1,1"}) == 2


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("--tensor-parallel true", 1),
        ("--gpu-split 20 24", 2),
        ("--gpu-split 20 24 24 --gpu-split-auto false", 3),
        ("--gpu-split=20", 1),
    ],
)
def test_tabbyapi(words: str, count: int) -> None:
    assert asked("exllamav3", *words.split()) == count


def test_mlx_has_no_such_words() -> None:
    assert asked("mlx", "--pipeline") == 1


def test_arguments_beat_options_and_options_beat_a_file() -> None:
    options = ServingOptions(tensor_parallel=2, pipeline_parallel=2)
    assert asked("vllm", options=options) == 4
    assert asked("vllm", "-tp", "8", options=options) == 16
    file = ("--tensor-parallel-size", "8", "--data-parallel-size", "2")
    assert asked("vllm", config=file) == 16
    assert asked("vllm", config=file, options=options) == 8
    assert asked("vllm", "-tp=1", config=file) == 2


def test_a_count_without_a_flag_of_its_own_is_the_launchs() -> None:
    """llama-server and TabbyAPI spread over whatever is leased."""
    options = ServingOptions(tensor_parallel=2)
    assert asked("llamacpp", options=options) == 2
    assert asked("llamacpp", "-ts", "1,1,1", options=options) == 3
    assert asked("exllamav3", "--tensor-parallel", "true", options=options) == 2


def test_the_words_are_told_as_they_were_written() -> None:
    words = ("-tp=2", "--data_parallel_size", "2")
    demand = ENGINES["vllm"].demand(ServingOptions(), words, {}, ())
    assert demand.words == ("-tp=2", "--data_parallel_size 2")


WORDS = st.sampled_from(
    [word for spec in ROWS.values() for word in spec.spelling.index]
    + [
        "--tp",
        "--dp=2",
        "-tp=",
        "=",
        "2",
        "0",
        "-1",
        "9999",
        "99999",
        "1,1",
        "1/1",
        ",,",
        "ray",
        "x",
    ]
)


@given(
    engine=st.sampled_from(list(ROWS)),
    words=st.lists(WORDS | st.text(max_size=8), max_size=12),
    config=st.lists(WORDS, max_size=6),
    tensor_parallel=st.integers(1, 64) | st.just(UNSET),
)
def test_any_words_come_to_a_number(
    engine: EngineId, words: list[str], config: list[str], tensor_parallel: int | UnsetType
) -> None:
    """As everything that a plan depends on: never an exception, never less than one device."""
    options = ServingOptions(tensor_parallel=tensor_parallel)
    demand = ENGINES[engine].demand(options, words, {}, config)
    assert demand.devices is None or demand.devices >= 1
    assert demand == ENGINES[engine].demand(options, words, {}, config)
