"""How much a launch may say, and that a plan of all of it does not hold up the others."""

from typing import Any

import pytest

from supervisor.contracts.engine import ServingOptions
from supervisor.contracts.instance import LaunchParams
from supervisor.lifecycle.errors import InvalidLaunch
from supervisor.lifecycle.order import resolve
from supervisor.lifecycle.sizes import MOST_BYTES, MOST_DEVICES, MOST_VARIABLES, MOST_WORDS

MOST: tuple[dict[str, Any], ...] = (
    {"extra_args": ("--x",) * MOST_WORDS},
    {"command": ("x",) * MOST_WORDS},
    {"env": {f"A{number}": "x" for number in range(MOST_VARIABLES)}},
    {"devices": tuple(f"GPU-{number}" for number in range(MOST_DEVICES))},
    {"extra_args": ("x" * (MOST_BYTES - 1),)},
    {"env": {"A": "x" * (MOST_BYTES - 3)}},
)


def order(**members: Any) -> None:
    resolve(LaunchParams(name="a", engine="vllm", model_path="/m", **members), {})


@pytest.mark.parametrize("members", MOST, ids=lambda it: next(iter(it)))
def test_as_much_as_may_be_is_taken(members: dict[str, Any]) -> None:
    order(**members)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"extra_args": ("x",) * 100_000}, "extraArgs has 100000 words; at most 512 are taken"),
        ({"command": ("x",) * 513}, "command has 513 words; at most 512 are taken"),
        ({"env": {f"A{n}": "" for n in range(257)}}, "env has 257 variables; at most 256"),
        ({"devices": tuple(map(str, range(257)))}, "devices has 257 ids; at most 256"),
        ({"extra_args": ("é" * 40_000,)}, "extraArgs has 80001 bytes; at most 65536 are taken"),
        ({"env": {"A": "x" * 70_000}}, "env has 70003 bytes; at most 65536"),
        ({"served_model_name": "x" * 70_000}, "servedModelName has 70001 bytes"),
        ({"env": {"HF_TOKEN": "tok\n" * 7_000}}, "env has 7000 lines; at most 512 are taken"),
        ({"extra_args": ("--api-key", "key," * 8_300)}, "has 8300 commas; at most 512 are taken"),
        ({"binary": "/" * 70_000}, "binary has 70001 bytes"),
        ({"options": ServingOptions(dtype="x" * 70_000)}, "dtype has 70001 bytes"),
    ],
)
def test_what_is_too_much_says_how_much_may_be(members: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidLaunch) as caught:
        order(**members)
    assert text in str(caught.value)
