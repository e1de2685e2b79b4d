"""For any request of any engine: there is a plan, it repeats no flag, and the launch's own words
have the end."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contracts.engine import ENGINE_IDS, EngineId, LaunchRequest, ServingOptions
from supervisor.engines.devices import DEVICE_VARIABLES, apply_devices
from supervisor.engines.picking import lease_violation
from supervisor.engines.registry import ENGINES
from supervisor.engines.secrets import mask_argv, secret_values
from tests.engines.requests import ACCELERATORS, ACCESS, HOSTS, request

# Written down once more, independently of the tables under test: every spelling of what we write,
# under one name. `-` stands for the value of a bare model.
_BOTH = {"--host": "host", "--port": "port"}
SAME: Mapping[EngineId, Mapping[str, str]] = {
    "vllm": {
        **_BOTH,
        **{"--model": "model", "--served-model-name": "name", "--served_model_name": "name"},
        **{"--tensor-parallel-size": "tp", "-tp": "tp", "--tensor_parallel_size": "tp"},
        **{"--pipeline-parallel-size": "pp", "-pp": "pp", "--max-model-len": "context"},
        **{"--gpu-memory-utilization": "memory", "--device-memory-utilization": "memory"},
        **{"--max-num-seqs": "requests", "--kv-cache-dtype": "cache", "--dtype": "dtype"},
        **{"--quantization": "quantization", "-q": "quantization"},
        **{"--tool-call-parser": "tools", "--reasoning-parser": "reasoning"},
    },
    "sglang": {
        **_BOTH,
        **{"--model": "model", "--model-path": "model", "--served-model-name": "name"},
        **{"--tensor-parallel-size": "tp", "--tp-size": "tp", "--tp": "tp", "--pp-size": "pp"},
        **{"--pipeline-parallel-size": "pp", "--context-length": "context"},
        **{"--mem-fraction-static": "memory", "--max-running-requests": "requests"},
        **{"--kv-cache-dtype": "cache", "--dtype": "dtype", "--quantization": "quantization"},
        **{"--tool-call-parser": "tools", "--reasoning-parser": "reasoning"},
    },
    "llamacpp": {
        **_BOTH,
        **{"-m": "model", "--model": "model", "-a": "name", "--alias": "name"},
        **{"-c": "context", "--ctx-size": "context", "-np": "requests", "--parallel": "requests"},
        **{"-ctk": "keys", "--cache-type-k": "keys", "-ctv": "values", "--cache-type-v": "values"},
        **{"--reasoning-format": "reasoning", "--api-prefix": "prefix"},
    },
    "mlx": {
        **_BOTH,
        **{"--model": "model", "--decode-concurrency": "requests", "--kv-bits": "cache"},
    },
    "exllamav3": {
        **_BOTH,
        **{"--model-dir": "dir", "--model-name": "name", "--max-seq-len": "context"},
        **{"--cache-size": "cache", "--max-batch-size": "requests", "--cache-mode": "mode"},
        **{"--tensor-parallel": "tp", "--tool-format": "tools", "--reasoning": "reasoning"},
    },
}
SWITCHES: Mapping[EngineId, Mapping[str, str]] = {
    "vllm": {
        **{"--trust-remote-code": "trust", "--no-trust-remote-code": "trust"},
        **{"--enable-auto-tool-choice": "auto", "--disable-auto-tool-choice": "auto"},
        "--enforce-eager": "other",
    },
    "sglang": {"--trust-remote-code": "trust", "--enable-metrics": "metrics", "--a-b": "other"},
    "llamacpp": {"--metrics": "metrics", "--no-warmup": "warmup", "-v": "verbose"},
    "mlx": {"--trust-remote-code": "trust", "--pipeline": "other"},
    "exllamav3": {},
}

texts = st.text(max_size=12)
WORDS = ("auto", "f16", "q8_0", "fp8", "deepseek", "gpt-oss", "6,5", "-x", "")
anything = st.one_of(texts, st.sampled_from(WORDS))
options = st.builds(
    ServingOptions,
    tensor_parallel=st.integers(-2, 9),
    pipeline_parallel=st.integers(-2, 9),
    max_context_length=st.integers(-(2**70), 2**70),
    memory_fraction=st.floats(),
    max_concurrent_requests=st.integers(-(2**70), 2**70),
    kv_cache_dtype=anything | st.none(),
    dtype=anything | st.none(),
    quantization=anything | st.none(),
    trust_remote_code=st.booleans(),
    tool_call_parser=anything | st.none(),
    reasoning_parser=anything | st.none(),
)
some_options = st.one_of(st.just(ServingOptions()), options)
ALL = sorted({word for words in (*SAME.values(), *SWITCHES.values()) for word in words})
flags = st.sampled_from([*ALL, "--ctx_size", "--top-k", "-dev", "--api-key", "--uds", "--config"])
noise = st.lists(st.one_of(texts, flags, st.builds("{}={}".format, flags, texts)), max_size=8)
variables = st.dictionaries(
    st.sampled_from(
        [
            *("LLAMA_ARG_PORT", "LLAMA_ARG_HOST", "LLAMA_ARG_N_PARALLEL", "AIP_MODE", "A"),
            *("TABBY_NETWORK_PORT", "TABBY_MODEL_MAX_BATCH_SIZE", "CUDA_VISIBLE_DEVICES"),
        ]
    ),
    texts,
)
engines = st.sampled_from(ENGINE_IDS)


def launch(base: LaunchRequest, chosen: ServingOptions, extra: list[str]) -> LaunchRequest:
    """msgspec's own replace, so that nothing is checked on the way."""
    return LaunchRequest(
        **{name: getattr(base, name) for name in base.__struct_fields__}
        | {"options": chosen, "extra_args": tuple(extra)}
    )


@settings(max_examples=300, deadline=None)
@given(
    engine=engines,
    host=st.sampled_from(sorted(HOSTS)),
    chosen=some_options,
    extra=noise,
    env=variables,
    model=texts,
    name=texts,
    binary=texts,
    image=st.none() | texts,
    runtime=st.sampled_from(["process", "docker"]),
    devices=st.lists(st.sampled_from(sorted(ACCELERATORS)), unique=True),
    limit=st.integers(1, 2**70),
)
def test_there_is_a_plan_for_every_request(
    engine: EngineId,
    host: str,
    chosen: ServingOptions,
    extra: list[str],
    env: dict[str, str],
    model: str,
    name: str,
    binary: str,
    image: str | None,
    runtime: str,
    devices: list[str],
    limit: int,
) -> None:
    changes: dict[str, Any] = {**HOSTS[host], "engine": engine, "env": env, "binary": binary}
    changes |= {"modelPath": model, "servedModelName": name, "runtime": runtime}
    changes |= {"devices": devices, "dockerImage": image, "readyLimitMs": limit}
    asked, spec = launch(request(**changes), chosen, extra), ENGINES[engine]
    plan = spec.plan(asked)
    assert plan == spec.plan(asked)
    assert all(isinstance(word, str) for word in plan.argv)
    assert plan.devices == tuple(devices)
    assert not (plan.env.keys() - env.keys()) & DEVICE_VARIABLES, "those are not an engine's to say"
    for access in ({}, ACCESS):
        assert apply_devices(plan, ACCELERATORS, access).devices == tuple(devices)
    spec.explain(asked)
    spec.address(extra, env)
    lease_violation(extra, env, devices, ACCELERATORS)
    assert len(mask_argv(plan.argv)) == len(plan.argv)
    secret_values(plan.argv)


@st.composite
def well_formed(draw: st.DrawFn) -> tuple[EngineId, list[tuple[str, ...]]]:
    """An engine and some options as it takes them."""
    engine = draw(engines)
    valued = st.tuples(st.sampled_from(sorted(SAME[engine])), st.sampled_from("123"))
    switches = [st.tuples(st.just(word)) for word in SWITCHES[engine]]
    return engine, draw(st.lists(st.one_of(valued, *switches), max_size=6))


@settings(max_examples=300, deadline=None)
@given(chosen=some_options, given_options=well_formed())
def test_what_a_launch_says_is_said_once_and_last(
    chosen: ServingOptions, given_options: tuple[EngineId, list[tuple[str, ...]]]
) -> None:
    engine, own = given_options
    extra = [word for option in own for word in option]
    argv = list(ENGINES[engine].plan(launch(request(engine=engine), chosen, extra)).argv)
    ours = argv[: len(argv) - len(extra)]
    assert argv[len(ours) :] == extra, "verbatim, at the end"
    said_by_us = list(said(engine, ours))
    assert len(set(said_by_us)) == len(said_by_us)
    assert not set(said_by_us) & set(said(engine, extra))


@settings(max_examples=200, deadline=None)
@given(chosen=some_options, given_options=well_formed())
def test_overriding_is_idempotent(
    chosen: ServingOptions, given_options: tuple[EngineId, list[tuple[str, ...]]]
) -> None:
    """All that a plan says, given as extra arguments, is a plan that says just that."""
    engine, own = given_options
    extra = [word for option in own for word in option]
    base = request(engine=engine)
    first = list(ENGINES[engine].plan(launch(base, chosen, extra)).argv)
    words = first[first_flag(engine, first) :]
    if engine == "vllm" and base.model_path in first:
        words = ["--model", base.model_path, *words]
    again = list(ENGINES[engine].plan(launch(base, chosen, words)).argv)
    assert again[first_flag(engine, again) :] == words


def first_flag(engine: EngineId, argv: list[str]) -> int:
    known = {*SAME[engine], *SWITCHES[engine]}
    found = (at for at, word in enumerate(argv) if word.partition("=")[0] in known)
    return next(found, len(argv))


def said(engine: EngineId, words: list[str]) -> Iterator[str]:
    """The name of each option among words, by the two tables above."""
    for word in words:
        flag = word.partition("=")[0]
        name = SAME[engine].get(flag) or SWITCHES[engine].get(flag)
        if name and name != "other":
            yield name


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_no_engine_is_left_out_of_the_tables(engine: EngineId) -> None:
    argv = ENGINES[engine].plan(request(engine=engine)).argv
    known = {*SAME[engine], *SWITCHES[engine]}
    assert {word for word in argv[1:] if word.startswith("-")} <= known
