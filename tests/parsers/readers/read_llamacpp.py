"""llama.cpp's own parser, out of the library that holds it. Argument: our program that calls it."""

import importlib.util
import os
import sys
import tempfile
from importlib.metadata import version
from typing import Any

import xllamacpp
from reading import Values, answer

PREFIXES = ("GGML_TYPE_", "COMMON_REASONING_FORMAT_")


def program(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("llama_server", path)
    assert spec, path
    assert spec.loader, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


llama_server = program(sys.argv[1])


def fresh() -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.port = llama_server.DEFAULT_PORT
    return params


def read(words: list[str]) -> tuple[Values, Values]:
    params, before = fresh(), fresh()
    llama_server.parse(before, [])
    with tempfile.TemporaryFile() as noise:
        kept = os.dup(2)  # what C++ prints goes past sys.stderr
        os.dup2(noise.fileno(), 2)
        try:
            fine = llama_server.parse(params, list(words))
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        noise.seek(0)
        said = noise.read().decode(errors="replace")
    if not fine:
        raise ValueError(said)
    return held(params), held(before)


def held(params: xllamacpp.CommonParams) -> Values:
    values: Values = {"model.path": params.model.path}
    for name in dir(params):
        value = getattr(params, name)
        if name.startswith("_") or callable(value):
            continue
        if isinstance(value, set):
            value = sorted(value)
        word = getattr(value, "name", "")
        for prefix in PREFIXES:
            if word.startswith(prefix):
                value = word.removeprefix(prefix).lower()
        if value is None or isinstance(value, (bool, int, float, str, list, dict)):
            values[name] = value
    return values


answer(version("xllamacpp"), [], read)
