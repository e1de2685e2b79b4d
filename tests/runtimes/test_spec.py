"""The second view of an engine: by id, in the contract's order."""

from supervisor.runtimes.spec import (
    ALL_ENGINE_SPECS,
    detect_engine_from_arguments,
    get_engine_spec,
)


def test_the_specs_come_in_order_and_by_id() -> None:
    assert [spec.id for spec in ALL_ENGINE_SPECS] == ["vllm", "sglang", "llamacpp", "mlx"]
    assert all(get_engine_spec(spec.id) is spec for spec in ALL_ENGINE_SPECS)


def test_a_spec_reads_arguments() -> None:
    spec, args = get_engine_spec("sglang"), ["sglang", "serve", "M", "--served-model-name=n"]
    assert spec.detect_invocation(args)
    assert spec.extract_model_path(args) == "M"
    assert spec.extract_served_model_name(args) == "n"
    assert not get_engine_spec("vllm").detect_invocation(args)


def test_detection_knows_the_four_and_no_more() -> None:
    assert detect_engine_from_arguments(["llama-server", "-m", "m"]) == "llamacpp"
    assert detect_engine_from_arguments(["python", "/tabbyAPI/main.py"]) is None
    assert detect_engine_from_arguments([]) is None
