"""Secrets on a command line, in every spelling that some engine takes (ARG-4)."""

import pytest

from supervisor.engines.api_key import api_key
from supervisor.engines.secrets import mask_argv, secret_values


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["x", "--api-key", "S1", "--port", "1"], ["x", "--api-key", "***", "--port", "1"]),
        (["--api-key=S1", "-v"], ["--api-key=***", "-v"]),
        (["--api_key=S1=S2"], ["--api_key=***"]),
        (["--api-key S1"], ["--api-key ***"]),
        (["--api-k", "S1"], ["--api-k", "***"]),
        (["--api-key", "S1", "S2", "--port", "1"], ["--api-key", "***", "***", "--port", "1"]),
        (["--api-key", "-S1", "-v"], ["--api-key", "***", "-v"]),
        (["-hft", "S1"], ["-hft", "***"]),
        (["--hf-token", "S1"], ["--hf-token", "***"]),
        (["--hf-t=S1"], ["--hf-t=***"]),
        (["--ssl-keyfile-password", "S1"], ["--ssl-keyfile-password", "***"]),
        (["--some-secret", "S1"], ["--some-secret", "***"]),
        (["--proxy", "http://u:S1@p:1/x"], ["--proxy", "http://***@p:1/x"]),
        (['{"url": "redis://:S1@h/0"}'], ['{"url": "redis://***@h/0"}']),
        (["--api-key"], ["--api-key"]),
        (["--token", "S1", "--port", "1"], ["--token", "***", "--port", "1"]),
        (["--passwd", "S1"], ["--passwd", "***"]),
        (["--auth=S1"], ["--auth=***"]),
        (["--API-KEY", "S1"], ["--API-KEY", "***"]),
        (["--Api_Key=S1"], ["--Api_Key=***"]),
        (["--x", '{"api_key":"S1"}'], ["--x", '{"api_key":"***"}']),
        (['--x={"a": {"apiKey" : "S\\"1"}, "b": 1}'], ['--x={"a": {"apiKey" : "***"}, "b": 1}']),
        (['{"Authorization": "Bearer S1"}'], ['{"Authorization": "***"}']),
    ],
)
def test_secrets_are_masked(argv: list[str], shown: list[str]) -> None:
    assert mask_argv(argv) == tuple(shown)


@pytest.mark.parametrize(
    "argv",
    [
        ["llama-server", "-m", "/m.gguf", "--host", "::1", "--port", "21000"],
        ["-hf", "user/repo:Q4"],
        ["--ssl-keyfile", "/etc/key.pem", "--api-key-file", "/etc/keys"],
        ["--max-num-batched-tokens", "512", "--tokenizer", "x", "--reasoning-start-token", "<t>"],
        ["--api", "x", "http://host/a@b"],
        ["--authors", "x", "--token-ids", "1", '{"eos_token": "</s>", "max_tokens": 4}'],
    ],
)
def test_the_rest_stays_readable(argv: list[str]) -> None:
    assert mask_argv(argv) == tuple(argv)


def test_the_values_are_told_for_masking_them_elsewhere() -> None:
    argv = ["--api-key", "one,two", "--port", "1", "--hf-token=three", "--hf-token", "--verbose"]
    assert secret_values(argv) == ("one,two", "one", "two", "three")
    assert secret_values(['{"api_key": "four"}', "--token=five"]) == ("four", "five")


def test_a_value_that_json_escapes_is_known_as_it_is_too() -> None:
    assert secret_values(['{"api_key": "a\\"b\\u00e9c"}']) == ('a\\"b\\u00e9c', 'a"b\u00e9c')


@pytest.mark.parametrize(
    ("argv", "env", "key"),
    [
        ([], {}, None),
        (["--api-key", "a,b"], {"LLAMA_API_KEY": "c"}, "a"),
        (["--api-key", "a", "--api_key=b"], {}, "b"),
        ([], {"LLAMA_API_KEY": "c,d"}, "c"),
        (["--api-key"], {}, None),
    ],
)
def test_the_key_that_a_probe_shows(argv: list[str], env: dict[str, str], key: str | None) -> None:
    assert api_key(argv, env) == key


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--hf-overrides.api_key", "SEKRET"], ["--hf-overrides.api_key", "***"]),
        (["--kv.extra.password=SEKRET"], ["--kv.extra.password=***"]),
        (["--json.token=SEKRET"], ["--json.token=***"]),
        (["env", "HF_TOKEN=SEKRET", "x"], ["env", "HF_TOKEN=***", "x"]),
        (["env", "DB_PW=SEKRET", "PWD=/here"], ["env", "DB_PW=***", "PWD=/here"]),
    ],
)
def test_dotted_flags_and_assignments(argv: list[str], shown: list[str]) -> None:
    assert list(mask_argv(argv)) == shown
    assert secret_values(argv) == ("SEKRET",)
