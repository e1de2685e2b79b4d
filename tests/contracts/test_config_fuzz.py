"""Whatever is in the file, reading it gives a configuration or a ``ConfigError``."""

import json
from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contracts.config import Config, ConfigError, Recipe, parse_config


def _keys(kind: Any, depth: int = 3) -> set[str]:
    """Every key that the file knows, at any place."""
    if depth == 0 or not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return set()
    fields = msgspec.structs.fields(kind)
    inner = (_keys(field.type, depth - 1) for field in fields)
    return {field.encode_name for field in fields}.union(*inner)


KEYS = st.sampled_from(sorted(_keys(Config) | _keys(Recipe))) | st.text(max_size=5)
LEAVES = (
    st.integers()
    | st.booleans()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["1979-05-27", "07:32:00", "0x" + "f" * 40]).map(lambda text: (text,))
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def toml(value: Any) -> str:
    match value:
        case (str(text),):
            return text
        case bool() | str():
            return json.dumps(value).replace("\x7f", "\\u007f")
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{toml(key)} = {toml(it)}' for key, it in value.items())}}}"
        case _:
            return str(value)


@settings(deadline=None, max_examples=600)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_no_tree_is_more_than_a_configuration_error(tree: dict[str, Any]) -> None:
    text = "".join(f"{toml(key)} = {toml(value)}\n" for key, value in tree.items())
    with suppress(ConfigError):
        parse_config(text)


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_no_recipe_is_more_than_a_configuration_error(tree: dict[str, Any]) -> None:
    lines = "".join(f"{toml(key)} = {toml(value)}\n" for key, value in tree.items())
    with suppress(ConfigError):
        parse_config(f'[recipes."a.b"]\n{lines}')


@settings(deadline=None, max_examples=300)
@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "replace")))
def test_no_text_is_more_than_a_configuration_error(text: str) -> None:
    with suppress(ConfigError):
        parse_config(text)
