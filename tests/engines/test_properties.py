"""For any request: there is a plan, it repeats no flag, and the launch's own words have the end."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contracts.engine import LaunchRequest, ServingOptions
from supervisor.engines.devices import apply_devices
from supervisor.engines.llamacpp import SPEC
from supervisor.engines.picking import lease_violation
from supervisor.engines.secrets import mask_argv, secret_values
from tests.engines.requests import ACCELERATORS, request

# Written down once more, independently of the tables under test.
SAME: Mapping[str, str] = {
    **{"-m": "-m", "--model": "-m", "-a": "-a", "--alias": "-a"},
    **{"--host": "--host", "--port": "--port", "-c": "-c", "--ctx-size": "-c"},
    **{"-np": "-np", "--parallel": "-np", "-ctk": "-ctk", "--cache-type-k": "-ctk"},
    **{"-ctv": "-ctv", "--cache-type-v": "-ctv", "--reasoning-format": "--reasoning-format"},
    **{"--metrics": "--metrics", "--api-prefix": "--api-prefix"},
}
SWITCHES = ("--metrics", "--no-warmup", "-v")

texts = st.text(max_size=12)
anything = st.one_of(texts, st.sampled_from(["auto", "f16", "q8_0", "fp8", "deepseek", "-x", ""]))
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
flags = st.sampled_from([*SAME, "--ctx_size", "--top-k", "-ngl", "-dev", "--api-key", *SWITCHES])
noise = st.lists(st.one_of(texts, flags, st.builds("{}={}".format, flags, texts)), max_size=8)
variables = st.dictionaries(
    st.sampled_from(["LLAMA_ARG_PORT", "LLAMA_ARG_HOST", "LLAMA_ARG_N_PARALLEL", "AIP_MODE", "A"]),
    texts,
)


def launch(base: LaunchRequest, chosen: ServingOptions, extra: list[str]) -> LaunchRequest:
    """msgspec's own replace, so that nothing is checked on the way."""
    return LaunchRequest(
        **{name: getattr(base, name) for name in base.__struct_fields__}
        | {"options": chosen, "extra_args": tuple(extra)}
    )


@settings(max_examples=200, deadline=None)
@given(
    chosen=some_options,
    extra=noise,
    env=variables,
    model=texts,
    name=texts,
    runtime=st.sampled_from(["process", "docker"]),
    devices=st.lists(st.sampled_from(sorted(ACCELERATORS)), unique=True),
)
def test_there_is_a_plan_for_every_request(
    chosen: ServingOptions,
    extra: list[str],
    env: dict[str, str],
    model: str,
    name: str,
    runtime: str,
    devices: list[str],
) -> None:
    base = request(env=env, modelPath=model, servedModelName=name, runtime=runtime, devices=devices)
    asked = launch(base, chosen, extra)
    plan = SPEC.plan(asked)
    assert plan == SPEC.plan(asked)
    assert all(isinstance(word, str) for word in plan.argv)
    assert apply_devices(plan, ACCELERATORS).devices == tuple(devices)
    SPEC.explain(asked)
    SPEC.address(extra, env)
    lease_violation(extra, env, devices, ACCELERATORS)
    assert len(mask_argv(plan.argv)) == len(plan.argv)
    secret_values(plan.argv)


valued = st.tuples(
    st.sampled_from([word for word in SAME if word != "--metrics"]), st.sampled_from("123")
)
well_formed = st.lists(valued | st.tuples(st.sampled_from(SWITCHES)), max_size=6)


@settings(max_examples=200, deadline=None)
@given(chosen=some_options, given_options=well_formed)
def test_what_a_launch_says_is_said_once_and_last(
    chosen: ServingOptions, given_options: list[tuple[str, ...]]
) -> None:
    extra = [word for option in given_options for word in option]
    argv = list(SPEC.plan(launch(request(), chosen, extra)).argv[1:])
    ours = argv[: len(argv) - len(extra)]
    assert argv[len(ours) :] == extra, "verbatim, at the end"
    said_by_us = []
    while ours:
        flag = ours.pop(0)
        said_by_us.append(SAME[flag])
        if flag not in SWITCHES:
            ours.pop(0)
    assert len(set(said_by_us)) == len(said_by_us)
    assert not set(said_by_us) & {SAME[option[0]] for option in given_options if option[0] in SAME}
