"""Secrets that a text itself calls so, and ordinary words beside them that stay (ARG-4)."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contracts.engine import ENGINE_IDS, EngineId
from supervisor.engines.keyed import keyed_spans, mask_keyed
from supervisor.engines.registry import SPELLINGS
from supervisor.engines.secrets import mask_argv, secret_values
from supervisor.lifecycle.sizes import MOST_BYTES

S = "SEKR1T-value/+x"
LOGS = Path(__file__).with_name("logs")


@pytest.mark.parametrize(
    "text",
    [
        # Queries of URLs: keys, and the signatures that make one.
        f"GET https://h/x?api_key={S}&v=1",
        f"https://h/x?v=1&apikey={S}",
        f"https://h/x?key={S}",
        f"https://acct.blob.core.windows.net/m?sv=2022&sig={S}&se=2026",
        f"https://b.s3.amazonaws.com/m?X-Amz-Expires=60&X-Amz-Signature={S}",
        f"https://b.s3.amazonaws.com/m?X-Amz-Credential={S}&x=1",
        f"https://b.s3.amazonaws.com/m?X-Amz-Security-Token={S}",
        f"https://storage.googleapis.com/m?X-Goog-Signature={S}",
        f"https://h/x?access_token={S}#frag",
        f"wss://h/x?token={S}",
        # Members of objects, in JSON and as Python prints them.
        f'{{"passphrase": "{S}"}}',
        f'{{"private_key": "{S}"}}',
        f'{{"pwd":"{S}", "n": 1}}',
        f'{{"auth": "{S}"}}',
        f'{{"cookie": "{S}"}}',
        f'{{"auth": {{"user": "{S}", "n": ["{S}", {{"deep": "{S}"}}]}}, "port": 1}}',
        f'{{"api_keys": ["{S}", "{S}"]}}',
        f"{{'api_key': ['{S}'], 'model': 'm'}}",
        f"Namespace(api_key='{S}', port=1)",
        f"Namespace(api_key={S}, port=1)",
        f'{{"awsSecretAccessKey": "{S}"}}',
        f'"{{\\"api_key\\": \\"{S}\\", \\"n\\": 1}}"',
        f'{{"api_key": "{S} that was cut in the mid',
        f'"auth": {{\n  "user": "{S}",\n  "n": 1\n}}',
        # Headers and lines of a log.
        f"X-Api-Key: {S}",
        f"x-api-key:{S}",
        f"Cookie: a={S}; b={S}",
        f"< Set-Cookie: session={S}; HttpOnly",
        f"Authorization: Basic {S}",
        f"proxy-authorization: Digest {S}",
        f'curl -H "Cookie: a={S}" http://h',
        f"X-Amz-Security-Token: {S}",
        f"secret_key: {S}",
        f"INFO secret_key = {S}",
        f"password={S};host=db",
        f"client_secret => {S}",
        f"hf_token: {S}",
    ],
)
def test_what_a_secret_name_names_is_masked(text: str) -> None:
    shown = mask_keyed(text)
    assert "SEKR1T" not in shown
    assert "***" in shown
    assert mask_keyed(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "--max-tokens 4096",
        "max_tokens=4096, num_tokens: 12, prompt_tokens: 3",
        "tokenizer: Qwen/Qwen3, tokenizer_mode=auto",
        "eos_token: </s>, bos_token='<s>', pad_token_id=0",
        '{"eos_token": "</s>", "max_tokens": 4, "tokenizer": "x"}',
        "num_key_value_heads=8 key_length: 128 --cache-type-k q8_0",
        "PWD=/here OLDPWD=/there",
        "pass: 3 passes, author: me, authenticate: yes",
        "api_key=None, hf_token=null, password: '' allow_credentials=False",
        '{"auth": "none", "auth": null, "cookie": true, "api_keys": []}',
        "Namespace(api_key=None, ssl_keyfile='/etc/key.pem')",
        "http://h/v1/models?limit=10&tokenizer=x&sort_key=a",
        "the password is asked for, and a secret is kept",
        "loading key: value pairs; monkey: 3; cookies are eaten",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert mask_keyed(text) == text
    assert mask_argv([text]) == (text,)


def test_real_logs_stay_as_they_are() -> None:
    """None of them has a secret in it."""
    texts = [path.read_text(errors="replace") for path in LOGS.rglob("*") if path.is_file()]
    assert texts
    for text in texts:
        assert [mask_keyed(line) for line in text.splitlines()] == text.splitlines()


SECRET = {"--api-key", "--admin-api-key", "--hf-token", "-hft"}


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_an_engines_ordinary_flags_are_shown_whole(engine: EngineId) -> None:
    spelling = SPELLINGS[engine]
    words = {*spelling.harmless.words, *spelling.index} - SECRET
    argv = [word for flag in sorted(words) for word in (flag, "4096")]
    assert mask_argv(argv) == tuple(argv)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (f"vllm serve --api-key {S} --port 1", "vllm serve --api-key *** --port 1"),
        (f"vllm serve --api-key '{S} b' -v", "vllm serve --api-key '*** -v"),
        (f"echo it isn't; x --api-key {S}", "echo it isn't; x --api-key ***"),
        (f"exec x --api-key={S} -v", "exec x --api-key=*** -v"),
        (f"HF_TOKEN={S} exec vllm serve m", "HF_TOKEN=***"),
        (f"export A=1 DB_PASSPHRASE='{S} x'; run", "export A=1 DB_PASSPHRASE=*** run"),
        (f"curl -H 'X-Api-Key: {S}' http://u:pw@h/", "curl -H 'X-Api-Key: ***' http://***@h/"),
    ],
)
def test_a_command_line_in_one_word(command: str, shown: str) -> None:
    assert mask_argv(["sh", "-c", command]) == ("sh", "-c", shown)
    assert any("SEKR1T" in value for value in secret_values(["sh", "-c", command]))


def test_a_template_is_no_command_line() -> None:
    template = '{% set eos_token="</s>" %} {{ bos_token }} {% if token == "x" %}'
    assert mask_argv(["--chat-template", template]) == ("--chat-template", template)


def test_switches_that_only_sound_like_it_take_nothing_with_them() -> None:
    argv = ("--allow-credentials", "--port", "1", "--cors-credentials", "--seqlog", "true")
    assert mask_argv(argv) == argv


def test_what_is_masked_in_a_word_is_masked_elsewhere() -> None:
    argv = ["--x", f'{{"auth": {{"user": "admin", "password": "{S}"}}}}', f"http://h/?sig={S}2"]
    # But not the ordinary words beside it, or logs would be full of holes.
    assert secret_values(argv) == (S, f"{S}2")


names = st.sampled_from(["api_key", "passphrase", "auth", "cookie", "privateKey", "X-Api-Key"])
leaves = st.recursive(
    st.just(S), lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner), max_leaves=6
)


@given(names, leaves, st.integers(0, 3), st.booleans())
def test_whatever_lies_below_a_secret_name_is_masked(
    name: str, value: object, indent: int, ensure: bool
) -> None:
    text = json.dumps({"a": {name: value, "z": 1}}, indent=indent or None, ensure_ascii=ensure)
    shown = mask_keyed(text)
    assert "SEKR1T" not in shown
    assert '"z": 1' in shown


@given(st.text(alphabet="ab:= \"'[]{},\\?&\n-_*", max_size=60), st.text(max_size=20))
def test_any_text_is_read_without_overlaps(left: str, right: str) -> None:
    text = f"{left}api_key{right}"
    end = 0
    for span in keyed_spans(text):
        assert end <= span.start < span.end <= len(text)
        end = span.end
    argv = (text, left, right)
    assert len(mask_argv(argv)) == 3


PIECES = (
    *(
        "a",
        "api_key",
        'api_key="',
        "api_key:{",
        '"',
        "x-",
        "&a.",
        '"auth":[ ',
        'api_key="\\"',
        "a =",
    ),
    *('"\\', "\\", "'", "' ", '" ', "\"'", "TOKEN=", "--api-key ", "://", "://a@", "?key=", " "),
)


@pytest.mark.parametrize("piece", PIECES)
def test_hostile_text_takes_no_longer_than_its_length(piece: str) -> None:
    text = piece * (MOST_BYTES // len(piece))
    began = time.process_time()
    mask_keyed(text)
    for word in (text, f" {text}"):
        mask_argv([word])
        secret_values([word])
    assert time.process_time() - began < 2.0
