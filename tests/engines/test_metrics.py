"""The canonical five out of real and of broken pages (MET-1, MET-2)."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contracts.engine import CanonicalMetric, EngineId, MetricMap
from supervisor.engines.metrics import CANONICAL, MOST_SAMPLES, is_exposition, read_metrics
from supervisor.engines.registry import ENGINES

LLAMACPP = ENGINES["llamacpp"].metrics
NAMES: MetricMap = {
    "requestsRunning": ("e:running", "e:old_running"),
    "kvCacheUtilization": ("e:usage", "e:old_usage"),
    "generationTokensTotal": ("e:tokens_total",),
}

SERVER_PAGE = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 25
llamacpp:prompt_tokens_cached_total 0
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 16
llamacpp:tokens_predicted_seconds_total 0.002872
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 0
"""
"""Printed by llama-server b11434, shortened to what could be confused."""


def value_of(page: str, metric: CanonicalMetric = "requestsRunning") -> float | None:
    return read_metrics(NAMES, page).values[metric]


def test_a_real_llama_server_page() -> None:
    reading = read_metrics(LLAMACPP, SERVER_PAGE)
    assert reading.values == {
        "requestsRunning": 1.0,
        "requestsWaiting": 0.0,
        "kvCacheUtilization": None,
        "promptTokensTotal": 25.0,
        "generationTokensTotal": 16.0,
    }
    assert reading.unsupported == ("kvCacheUtilization",)
    assert reading.bad_lines == 0


VLLM_PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="/models/m"} 2.0
vllm:num_requests_running{engine="1",model_name="/models/m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="/models/m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="/models/m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="/models/m",reason="capacity"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="/models/m",reason="deferred"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="/models/m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="/models/m"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="/models/m"} 46.0
vllm:prompt_tokens_total{engine="1",model_name="/models/m"} 4.0
vllm:prompt_tokens_created{engine="0",model_name="/models/m"} 1.796e+09
vllm:generation_tokens_total{engine="0",model_name="/models/m"} 22.0
vllm:generation_tokens_total{engine="1",model_name="/models/m"} 0.0
vllm:iteration_tokens_total_sum{engine="0",model_name="/models/m"} 68.0
"""
"""As printed by vLLM 0.32.0, with a second data-parallel engine as its source would print it."""

SGLANG_PAGE = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",priority="",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",model_name="m",priority="1",tp_rank="0"} 2.0
sglang:num_running_reqs{engine_type="unified",model_name="m",priority="2",tp_rank="0"} 3.0
sglang:num_running_reqs{engine_type="unified",model_name="m",priority="",tp_rank="1"} 5.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",priority="",tp_rank="0"} 1.0
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.28
sglang:full_token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.3
sglang:prompt_tokens_total{engine_type="unified",is_streaming="true",model_name="m"} 10.0
sglang:prompt_tokens_total{engine_type="unified",is_streaming="false",model_name="m"} 5.0
sglang:generation_tokens_total{engine_type="unified",is_streaming="true",model_name="m"} 7.0
"""
"""Rebuilt from the source of SGLang 0.5.23 (``metrics_collector.py``)."""


@pytest.mark.parametrize(
    ("engine", "page", "values"),
    [
        ("vllm", VLLM_PAGE, (3.0, 3.0, 0.375, 50.0, 22.0)),
        ("sglang", SGLANG_PAGE, (5.0, 1.0, 0.28, 15.0, 7.0)),
    ],
)
def test_pages_of_engines_with_many_series(
    engine: EngineId, page: str, values: tuple[float, ...]
) -> None:
    reading = read_metrics(ENGINES[engine].metrics, page)
    assert tuple(reading.values[metric] for metric in CANONICAL) == values
    assert reading.unsupported == ()


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if ENGINES[engine].metrics])
@pytest.mark.parametrize("metric", CANONICAL)
def test_each_real_name_alone_and_all_together(engine: EngineId, metric: CanonicalMetric) -> None:
    """MET-1 for every engine: only the old name, only the new one, all of them, none."""
    names = ENGINES[engine].metrics
    candidates = names[metric]
    for place, name in enumerate(candidates):
        assert read_metrics(names, f"{name} {place}\n").values[metric] == place
    every = "".join(f"{name} {place}\n" for place, name in enumerate(candidates))
    assert read_metrics(names, every).values[metric] == 0
    assert metric in read_metrics(names, "x 1\n").unsupported


@pytest.mark.parametrize("engine", ["mlx", "exllamav3"])
def test_engines_without_a_page(engine: EngineId) -> None:
    assert read_metrics(ENGINES[engine].metrics, "").unsupported == CANONICAL


# MET-1


@pytest.mark.parametrize(
    ("page", "value"),
    [
        ("e:old_running 3\n", 3.0),
        ("e:running 4\n", 4.0),
        ("e:old_running 3\ne:running 4\n", 4.0),
        ("e:running_by_reason 9\ne:running_created 9\nx 1\n", None),
    ],
)
def test_the_first_name_that_is_there_counts(page: str, value: float | None) -> None:
    reading = read_metrics(NAMES, page)
    assert reading.values["requestsRunning"] == value
    assert ("requestsRunning" in reading.unsupported) == (value is None)


def test_a_name_of_which_only_the_type_is_told_is_supported_and_unknown() -> None:
    reading = read_metrics(NAMES, "# TYPE e:tokens_total counter\n")
    assert reading.values["generationTokensTotal"] is None
    assert "generationTokensTotal" not in reading.unsupported


def test_an_engine_without_a_page_supports_none() -> None:
    assert read_metrics({}, "e:running 1\n").unsupported == CANONICAL


# Label sets


def test_counts_are_summed_and_shares_averaged() -> None:
    page = (
        'e:running{engine="0",model_name="m"} 2\ne:running{engine="1",model_name="m"} 3\n'
        'e:usage{engine="0"} 0.25\ne:usage{engine="1"} 0.75\n'
        'e:tokens_total{is_streaming="true"} 7\ne:tokens_total{is_streaming="false"} 5\n'
    )
    reading = read_metrics(NAMES, page)
    assert reading.values["requestsRunning"] == 5.0
    assert reading.values["kvCacheUtilization"] == 0.5
    assert reading.values["generationTokensTotal"] == 12.0


def test_the_parts_of_a_total_are_not_added_to_it() -> None:
    page = (
        'e:running{priority="",dp_rank="0"} 5\ne:running{priority="1",dp_rank="0"} 2\n'
        'e:running{priority="2",dp_rank="0"} 3\n'
    )
    assert value_of(page) == 5.0


def test_parts_without_a_total_are_added() -> None:
    assert value_of('e:running{priority="1"} 2\ne:running{priority="2"} 3\n') == 5.0


def test_what_every_rank_repeats_counts_once_for_each_data_parallel_engine() -> None:
    """Under data parallelism the second engine's first rank is not 0."""
    page = "".join(
        f'e:running{{dp_rank="{tp // 2}",tp_rank="{tp}",pp_rank="0"}} {7 if tp < 2 else 4}\n'
        for tp in range(4)
    )
    assert value_of(page) == 11.0


# MET-2


@pytest.mark.parametrize("bad", ["NaN", "+Inf", "-Inf", "Inf", "1e999", "9" * 400, "x", ""])
def test_a_number_that_is_none_is_dropped_alone(bad: str) -> None:
    page = f'e:running{{a="1"}} {bad}\ne:running{{a="2"}} 2\ne:usage {bad}\ne:tokens_total 4\n'
    reading = read_metrics(NAMES, page)
    assert reading.values["requestsRunning"] == 2.0
    assert reading.values["kvCacheUtilization"] is None
    assert "kvCacheUtilization" not in reading.unsupported
    assert reading.values["generationTokensTotal"] == 4.0
    assert reading.bad_lines == 2


@pytest.mark.parametrize(
    "line",
    [
        r'e:running{a="with space",b="} 9 {",c="\"quoted\"",d="two\nlines"} 2',
        "e:running 2 1700000000000",
        "e:running{} 2",
        'e:running{a="b",} 2.0',
        "e:running\t2",
        "e:running 2\r",
        "  e:running 2",
    ],
)
def test_what_only_looks_broken_is_read(line: str) -> None:
    assert value_of(f"{line}\n") == 2.0


@pytest.mark.parametrize(
    "line", ['e:running{a="b', 'e:running{a="b"', "e:running", "e:running{a=b} 1"]
)
def test_half_a_line_costs_no_other(line: str) -> None:
    reading = read_metrics(NAMES, f"{line}\ne:tokens_total 4\n")
    assert reading.values["generationTokensTotal"] == 4.0
    assert reading.bad_lines == 1


def test_more_samples_than_anybody_has_are_not_read() -> None:
    page = "".join(f'e:running{{a="{number}"}} 1\n' for number in range(10_000))
    reading = read_metrics(NAMES, page)
    assert reading.values["requestsRunning"] == MOST_SAMPLES
    assert reading.bad_lines == 10_000 - MOST_SAMPLES


def test_behind_the_last_line_end_there_is_no_line() -> None:
    """``12`` of which one digit came through must not be read as 1."""
    reading = read_metrics(NAMES, "e:tokens_total 4\ne:running 1")
    assert reading.values["requestsRunning"] is None
    assert reading.values["generationTokensTotal"] == 4.0
    assert reading.bad_lines == 1
    assert read_metrics(NAMES, "e:tokens_total 4\ne:run", whole=False).bad_lines == 0


@pytest.mark.parametrize("page", ["<!doctype html>", "\n <html>", '{"detail": "Not Found"}', "[]"])
def test_another_kind_of_page_is_told_apart(page: str) -> None:
    assert not is_exposition(page)


def test_a_real_page_is_one() -> None:
    assert is_exposition(SERVER_PAGE)
    assert is_exposition("")


@given(st.text() | st.from_regex(r"e:running(\{[^}]*\})? [0-9.eEInfNa+-]{0,20}\n", fullmatch=True))
def test_any_text_gives_strict_json(page: str) -> None:
    reading = read_metrics(NAMES, page)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(msgspec.json.encode(dict(reading.values)), parse_constant=refuse)
    assert reading.values.keys() == set(CANONICAL)
