"""The configuration file: its example, its errors, and its recipes beside the launch parameters."""

import re
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from supervisor.contracts import config as module
from supervisor.contracts.config import Config, ConfigError, Recipe, RecipeOptions, parse_config
from supervisor.contracts.engine import ServingOptions
from supervisor.contracts.instance import LaunchParams

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"
SET_UP = re.compile(r"^#(?=[\[\w])", re.MULTILINE)
RECIPE = "[recipes.q]\nengine = 'vllm'\nmodel-path = '/m'\n"

TABLES = [
    thing
    for thing in vars(module).values()
    if isinstance(thing, type) and issubclass(thing, msgspec.Struct) and thing.__name__[0] != "_"
]


def nested(value: Any) -> list[msgspec.Struct]:
    """A config value and all the tables below it."""
    if isinstance(value, dict):
        return [table for item in value.values() for table in nested(item)]
    if isinstance(value, tuple):
        return [table for item in value for table in nested(item)]
    if not isinstance(value, msgspec.Struct):
        return []
    below = [getattr(value, name) for name in value.__struct_fields__]
    return [value, *(table for item in below for table in nested(item))]


def test_the_example_as_it_is_changes_nothing() -> None:
    assert parse_config(EXAMPLE.read_text()) == parse_config("") == Config()


def test_the_example_names_every_key() -> None:
    text = SET_UP.sub("", EXAMPLE.read_text())
    tables = {type(table): table for table in nested(parse_config(text))}
    assert set(tables) == set(TABLES)
    keys = set(re.findall(r"^([\w-]+) = ", text, re.MULTILINE))
    for struct, table in tables.items():
        for field in msgspec.structs.fields(struct):
            assert getattr(table, field.name) is not UNSET, field.encode_name
            is_table = nested(getattr(table, field.name))
            assert is_table or field.encode_name in keys, field.encode_name


def test_the_example_shows_true_defaults() -> None:
    shown = parse_config(SET_UP.sub("", EXAMPLE.read_text()))
    assert (shown.ports, shown.restart) == (Config().ports, Config().restart)
    assert (shown.log_level, shown.tombstones) == (Config().log_level, Config().tombstones)
    assert (shown.cgroups, shown.logs) == (Config().cgroups, Config().logs)
    assert msgspec.structs.replace(shown.docker, socket=UNSET) == Config().docker
    assert shown.access.socket_mode == Config().access.socket_mode


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ("sokcet = '/x'", "sokcet", "no such key; did you mean `socket`?"),
        ("[recipe.q]\nengine = 'vllm'", "recipe", "did you mean `recipes`?"),
        ("[recipes.q]\nengine = 'vllm'\nmodel-path = 'm'", "recipes.q.model-path", "absolute"),
        ('socket = "a\\u0000b"', "socket", "NUL"),
        ('[recipes."a\\u0000"]', "recipes.a\\0", "NUL"),
        ('[devices]\nstatic = [{ id = "\\u0000" }]', "devices.static[0].id", "NUL"),
        (RECIPE + "port = -1", "recipes.q.port", "1 to 65535"),
        (RECIPE + "device-count = 0", "recipes.q.device-count", "at least 1"),
        (RECIPE + "extraargs = []", "recipes.q.extraargs", "did you mean `extra-args`?"),
        ("socket = 3", "socket", "Expected `str`, got `int`"),
        ("state_dir = '/x'", "state_dir", "no such key"),
        ("tombstones = '9'", "tombstones", "Expected `int`, got `str`"),
        ("log-level = 'loud'", "log-level", "Invalid enum value 'loud'"),
        ("cgroups = true", "cgroups", "Expected `str`, got `bool`"),
        ("cgroups = 'on'", "cgroups", "Invalid enum value 'on'"),
        ("ports = 3", "ports", "Expected `object`, got `int`"),
        ("[ports]\nfrist = 1", "ports.frist", "no such key"),
        ("[ports]\nfirst = true", "ports.first", "Expected `int`, got `bool`"),
        ("[ports]\nfirst = 0", "ports", "1 to 65535"),
        ("[ports]\nfirst = 9\nlast = 8", "ports", "1 to 65535"),
        ("[ports]\nlast = 65536", "ports", "1 to 65535"),
        ("[access]\nadmin = ['root']", "access.admin[0]", "Expected `int`, got `str`"),
        ("[access]\nsocket-mode = '0777'", "access.socket-mode", "Invalid enum value '0777'"),
        ("[[devices.static]]\nid = 'a'", "devices.static[0]", "`accelerator` is missing"),
        (
            "[[devices.static]]\nid = 'a'\naccelerator = 'npu'",
            "devices.static[0].accelerator",
            "Invalid enum value 'npu'",
        ),
        (
            "[[devices.static]]\nid = 'a'\naccelerator = 'cpu'\n" * 2,
            "devices.static",
            "'a' is there twice",
        ),
        (RECIPE.replace("q", "'a b'") + "autostart = true", "recipes.a b", "under its own name"),
        ("[restart]\nbreaker-ms = 99999999999999", "restart", "from 0 to 2592000000 ms"),
        ("[restart]\nmax-ms = 99999999999999", "restart", "from 0 to 2592000000 ms"),
        ("[restart]\nunhealthy-ms = -1", "restart", "from 0 to"),
        ("[logs]\nmax-bytes = 1000", "logs", "at least 1048576"),
        ("[logs]\narchives = 0", "logs", "1 to 100"),
        ("[engines]\nvlmm = 'x'", "engines.vlmm", "no such key"),
        ("recipes = 3", "recipes", "expected a table of recipes"),
        ("[recipes]\nq = 3", "recipes.q", "Expected `object`, got `int`"),
        ("[recipes.q]\nengine = 'vllm'", "recipes.q", "`model-path` is missing"),
        ("[recipes.q]\nengine = 'vlm'\nmodel-path = '/m'", "recipes.q.engine", "Invalid enum"),
        (RECIPE + "name = 'x'", "recipes.q.name", "no such key"),
        (RECIPE + "port = '80'", "recipes.q.port", "Expected `int`, got `str`"),
        (RECIPE + "extra-args = ['a', 1]", "recipes.q.extra-args[1]", "Expected `str`, got `int`"),
        (RECIPE + "env = { A = 'x', B = 1 }", "recipes.q.env.B", "Expected `str`, got `int`"),
        (RECIPE + "options.tp = 2", "recipes.q.options.tp", "no such key"),
        (
            RECIPE + "options.tensor-parallel = 'two'",
            "recipes.q.options.tensor-parallel",
            "Expected `int`, got `str`",
        ),
    ],
)
def test_an_error_names_the_key_by_its_path(text: str, path: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    where, _, what = str(caught.value).partition(": ")
    assert where == path
    assert problem in what


@pytest.mark.parametrize("text", ["socket = ", "[ports", "a = 1\na = 2", "\0"])
def test_what_is_no_toml_says_where(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not valid TOML: .*\(at (line \d|end)"):
        parse_config(text)


def kind(annotation: Any) -> frozenset[Any]:
    """The types a member may have, but for "not given" and for null, which TOML does not have."""
    parts = get_args(annotation) if is_union(annotation) else (annotation,)
    options = {RecipeOptions: ServingOptions}
    return frozenset(
        options.get(part, part) for part in parts if part not in (UnsetType, type(None))
    )


def is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


@pytest.mark.parametrize(
    ("table", "wire", "file_only", "call_only"),
    [
        (Recipe, LaunchParams, {"autostart"}, {"name", "recipe", "install", "wait"}),
        (RecipeOptions, ServingOptions, set(), set()),
    ],
)
def test_recipes_keep_in_step_with_launch_parameters(
    table: type[msgspec.Struct],
    wire: type[msgspec.Struct],
    file_only: set[str],
    call_only: set[str],
) -> None:
    """What a recipe can say is what a launch can say, but for what belongs to one of them alone."""
    in_file = {field.name: kind(field.type) for field in msgspec.structs.fields(table)}
    on_wire = {field.name: kind(field.type) for field in msgspec.structs.fields(wire)}
    assert file_only <= in_file.keys()
    assert call_only <= on_wire.keys()
    assert {name: of for name, of in in_file.items() if name not in file_only} == {
        name: of for name, of in on_wire.items() if name not in call_only
    }
