"""Secrets of a launch, in every spelling an engine may log them in."""

import json

import pytest

from supervisor.contracts.engine import HealthCheck, LaunchPlan
from supervisor.contracts.instance import LaunchParams
from supervisor.lifecycle.redaction import Redactor

SECRET = 'p"w\\dé-hunter2'


def redactor(**members: object) -> Redactor:
    return Redactor.of(LaunchParams(name="x", **members), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["MY_PASS", "GITHUB_PAT", "SECRET_KEY_BASE", "HF_TOKEN", "API_KEY"]
)
@pytest.mark.parametrize(
    "written",
    [SECRET, json.dumps(SECRET), json.dumps(SECRET, ensure_ascii=False), repr(SECRET)],
    ids=["plain", "json", "json in unicode", "python"],
)
def test_a_secret_is_masked_however_it_is_written(name: str, written: str) -> None:
    shown = redactor(env={name: SECRET}).text(f"config: {written} end")
    assert "hunter2" not in shown
    assert shown.startswith("config: ")
    assert shown.endswith(" end")


@pytest.mark.parametrize("url", ["https://hf_abc@host/x", "https://me:pw12@host/x"])
def test_what_stands_before_a_host_is_masked(url: str) -> None:
    assert redactor().text(f"GET {url}") == "GET https://***@host/x"


def test_a_small_number_is_no_secret() -> None:
    assert redactor(env={"MAX_TOKENS": "4096"}).text("ctx 4096") == "ctx 4096"


def test_a_secret_flag_at_the_end_of_the_extra_args_takes_nothing_of_the_plan_with_it() -> None:
    plan = LaunchPlan(
        kind="process",
        argv=("/bin/vllm", "serve", "/models/m", "--api-key", "SEKRIT"),
        env={},
        ports=(),
        mounts=(),
        devices=(),
        health=HealthCheck(path="/", ready_deadline_ms=1, interval_ms=1),
    )
    redactor = Redactor.of(LaunchParams(name="a", extra_args=("--api-key", "SEKRIT")), plan)
    assert redactor.secrets == ("SEKRIT",)
    assert redactor.argv(plan.argv) == ("/bin/vllm", "serve", "/models/m", "--api-key", "***")


KEY = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"


@pytest.mark.parametrize(
    "log",
    [
        # TabbyAPI e632af4 without --disable-auth, into a file: it breaks its lines at 80 columns.
        f"2026-12-01 INFO:     Your API key is: \n{KEY}\n"
        f"2026-12-01 INFO:     Your admin key is: \n{OTHER}\n2026-12-01 INFO:     If these keys",
        f"INFO:     Your API key is: {KEY}, {OTHER}\nINFO:     Your admin key is: {OTHER}\n",
    ],
    ids=["broken at 80 columns", "in one line"],
)
def test_the_keys_that_an_engine_makes_up_for_itself_are_masked(log: str) -> None:
    for shown in (redactor().text(log), "\n".join(map(redactor().text, log.splitlines()))):
        assert KEY not in shown
        assert OTHER not in shown
        assert "Your admin key is: " in shown
