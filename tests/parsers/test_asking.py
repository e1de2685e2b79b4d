"""The judge itself: it must see what it is there for."""

from pathlib import Path
from typing import Any

import pytest

from supervisor.engines import mlx
from tests.engines import golden
from tests.parsers.asking import Told, misread, strange_flags, words_of

PATH = next(path for path in golden.cases("mlx") if path.stem == "knob-maxConcurrentRequests")
RIGHT = {"model": "/data/qwen3", "host": "127.0.0.1", "port": 21000, "decode_concurrency": 16}


def told(answer: dict[str, Any], flags: frozenset[str] = frozenset()) -> Told:
    return Told(version="1", flags=flags, read={PATH.stem: answer})


def read(values: dict[str, Any]) -> dict[str, Any]:
    return {"values": values | {"seed": 0}, "changed": sorted(values)}


def test_all_landed() -> None:
    assert misread(PATH, told(read(RIGHT))) is None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (read(RIGHT | {"decode_concurrency": 8}), "decode_concurrency"),
        (read(RIGHT | {"decode_concurrency": "16"}), "decode_concurrency"),
        ({"values": RIGHT | {"top_p": 1}, "changed": [*RIGHT, "top_p"]}, "top_p"),
        (read({name: RIGHT[name] for name in ("model", "host", "port")}), "decode_concurrency"),
        ({"error": "unrecognized arguments"}, "unrecognized"),
    ],
)
def test_what_went_elsewhere_is_seen(answer: dict[str, Any], problem: str) -> None:
    assert problem in str(misread(PATH, told(answer)))


def test_flags_that_drifted_are_seen() -> None:
    every = frozenset(mlx.SPELLING.index) | mlx.SPELLING.harmless.words
    assert strange_flags("mlx", told({}, every)) == []
    assert "no flag --kv-bits" in strange_flags("mlx", told({}, every - {"--kv-bits"}))
    # One of those that anybody may say counts as well.
    assert strange_flags("mlx", told({}, every - {"--top-k"})) == ["no flag --top-k"]
    # An engine's own flag that is the beginning of one of ours: it would drop ours.
    assert strange_flags("mlx", told({}, every | {"--kv"})) == ["--kv would count as ours"]
    # Where ours is a beginning of two of the engine's, neither can be meant by it.
    assert strange_flags("mlx", told({}, every | {"--kv-bits-x"})) == []


@pytest.mark.parametrize("path", golden.cases(), ids=golden.name_of)
def test_every_plan_has_words_for_its_parser(path: Path) -> None:
    assert words_of(path)
