"""Extra arguments: last, as they are, and never beside a flag of ours that says the same."""

import pytest

from supervisor.engines.llamacpp import SPEC
from tests.engines.requests import argv, request

OPTIONS = {"maxContextLength": 4096, "maxConcurrentRequests": 2, "kvCacheDtype": "q8_0"}
OURS = argv(request(options=OPTIONS))


def without(*flags: str) -> list[str]:
    """Our own words without these flags and their values."""
    words = list(OURS)
    for flag in flags:
        at = words.index(flag)
        del words[at : at + 2]
    return words


@pytest.mark.parametrize(
    ("extra", "dropped"),
    [
        (("-m", "/other.gguf"), "-m"),
        (("--model", "/other.gguf"), "-m"),
        (("-c", "1"), "-c"),
        (("--ctx-size", "1"), "-c"),
        (("--ctx_size", "1"), "-c"),
        (("--alias", "x"), "-a"),
        (("--cache-type-k", "f16"), "-ctk"),
        (("--cache_type_v", "f16"), "-ctv"),
        (("--host", "::1"), "--host"),
    ],
)
def test_every_spelling_of_a_flag_drops_ours_with_its_value(
    extra: tuple[str, ...], dropped: str
) -> None:
    words = argv(request(options=OPTIONS, extraArgs=extra))
    assert words == [*without(dropped), *extra]


def test_slots_said_elsewhere_change_the_context_that_we_say() -> None:
    words = argv(request(options=OPTIONS, extraArgs=["--parallel", "5"]))
    expected = without("-np")
    expected[expected.index("-c") + 1] = str(4096 * 5)
    assert words == [*expected, "--parallel", "5"]


def test_a_switch_takes_no_value_along() -> None:
    words = argv(request(extraArgs=["--metrics", "-v"]))
    assert words[-2:] == ["--metrics", "-v"]
    assert words.count("--metrics") == 1


@pytest.mark.parametrize(
    ("given", "put_right"),
    [
        (["--ctx-size=4096"], ["--ctx-size", "4096"]),
        (["--ctx-size 4096"], ["--ctx-size", "4096"]),
        (["-c 4096"], ["-c", "4096"]),
        (["-c=4096"], ["-c", "4096"]),
        (["--top-k=40"], ["--top-k", "40"]),
        (["--top-k 40"], ["--top-k", "40"]),
        (['--chat-template-kwargs={"a": "b=c"}'], ["--chat-template-kwargs", '{"a": "b=c"}']),
        (["--grammar="], ["--grammar", ""]),
    ],
)
def test_a_flag_and_its_value_become_two_words(given: list[str], put_right: list[str]) -> None:
    launch = request(extraArgs=given)
    words = argv(launch)
    assert words[-len(put_right) :] == put_right
    (note,) = (note for note in SPEC.explain(launch).notes if "cut" in note)
    assert put_right[0] in note
    assert put_right[1] not in note or not put_right[1], "a value may be a secret"


@pytest.mark.parametrize(
    "words",
    [
        ["--chat-template-kwargs", '{"enable_thinking": false}'],
        ["--override-kv", "tokenizer.ggml.add_bos_token=bool:false"],
        ["-ot", "blk.0=CPU"],
        ["--seed", "-1"],
        ["--reasoning-budget-message", "-- enough=now"],
        ["--reverse-prompt", "-x marks the spot"],
        ["-a", "--port=1"],
        ["", "-", "--"],
    ],
)
def test_values_stay_as_they_are(words: list[str]) -> None:
    assert argv(request(extraArgs=words))[-len(words) :] == words


def test_an_unfinished_flag_is_the_engines_to_refuse() -> None:
    assert argv(request(options=OPTIONS, extraArgs=["-c"])) == [*without("-c"), "-c"]
