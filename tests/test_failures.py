"""What each failure looks like to a program, to a person and in the event log."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contracts.failure import (
    AlreadyRunning,
    Cancelled,
    Diagnosis,
    ExitedEarly,
    InstallFailed,
    LaunchFailure,
    NoCapacity,
    SpawnFailed,
    UnhealthyTimeout,
    UnsupportedFailure,
)
from supervisor.failures import bounded_tail, sentence, to_event, to_http, to_rpc

IN_THE_SEEDS_ORDER: list[tuple[LaunchFailure, int, int, str]] = [
    (UnsupportedFailure(engine="mlx", reason="needs Metal"), 1001, 422, "needs Metal"),
    (AlreadyRunning(name="a"), 1002, 409, "enginectl stop a"),
    (NoCapacity(need=2, free=0, detail="D0 by b"), 1003, 409, "2 devices are needed and none"),
    (InstallFailed(engine="vllm", detail="run `uv tool install vllm`"), 1004, 503, "uv tool"),
    (SpawnFailed(detail="/x is missing", reason="model-missing"), 1005, 503, "/x is missing"),
    (ExitedEarly(exit_code=0, signal=None, log_tail=""), 1006, 503, "exited with code 0"),
    (UnhealthyTimeout(waited_ms=1500, log_tail=""), 1007, 503, "after 1.5 s"),
    (Cancelled(), 1008, 400, "cancelled"),
]


@pytest.mark.parametrize(("failure", "code", "status", "said"), IN_THE_SEEDS_ORDER)
def test_every_failure_has_its_number_its_status_and_a_sentence(
    failure: LaunchFailure, code: int, status: int, said: str
) -> None:
    error = to_rpc(failure)
    assert (error.code, to_http(failure)) == (code, status)
    assert said in error.message == sentence(failure)
    assert "\n" not in error.message


@pytest.mark.parametrize("failure", [row[0] for row in IN_THE_SEEDS_ORDER])
def test_the_events_failure_equals_the_replys_data(failure: LaunchFailure) -> None:
    event = to_event(failure, instance="a", nonce="n", attempt=1, log_path=None)
    encoded = msgspec.json.decode(msgspec.json.encode(event))
    assert encoded["failure"] == msgspec.json.decode(msgspec.json.encode(to_rpc(failure)))["data"]
    assert (encoded["kind"], encoded["instance"], encoded["nonce"]) == ("launch-failed", "a", "n")


def test_a_diagnosis_says_what_to_do() -> None:
    diagnosis = Diagnosis(code="oom", summary="out of memory", hint="lower it", evidence="...")
    killed = ExitedEarly(exit_code=None, signal="SIGKILL", log_tail="", diagnosis=diagnosis)
    assert sentence(killed) == (
        "the engine was ended by SIGKILL before it was ready: out of memory; lower it"
    )
    unknown = ExitedEarly(exit_code=None, signal=None, log_tail="")
    assert sentence(unknown) == "the engine ended before it was ready"


def test_memory_that_is_not_free_is_named_in_the_unit_that_reads_best() -> None:
    assert "180 GiB of a device's memory are needed and 512 MiB are free" in sentence(
        NoCapacity(need=1, free=1, need_bytes=180 << 30, free_bytes=512 << 20)
    )


@given(st.text(alphabet=st.characters(), max_size=300), st.integers(1, 200))
def test_a_tail_fits_once_it_is_encoded(text: str, times: int) -> None:
    tail = bounded_tail(text * times)
    assert len(msgspec.json.encode(tail)) <= 8192


def test_a_short_log_is_kept_whole_and_a_long_one_starts_at_a_line() -> None:
    assert bounded_tail("one\ntwo") == "one\ntwo"
    lines = [f"line {number}" for number in range(5000)]
    tail = bounded_tail("\n".join(lines)).split("\n")
    assert tail == lines[-len(tail) :]
    assert len(tail) > 500


def test_one_endless_line_keeps_its_end() -> None:
    tail = bounded_tail("x" * 100_000 + "the cause")
    assert tail.endswith("the cause")
    assert len(tail) == 8190


def test_lone_surrogates_do_not_break_the_reply() -> None:
    assert bounded_tail("a\ud800b") == "a?b"
