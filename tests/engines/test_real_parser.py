"""llama-server itself judges our command lines: its own parser reads every golden plan.

It reads its arguments before it looks at the model, which is not there; so it always ends with an
error, and the question is only which.
"""

import re
import subprocess
from pathlib import Path

import pytest

from supervisor.engines.llamacpp import SPEC
from tests.engines import golden
from tests.engines.requests import request
from tests.parts import real_llama

REFUSED = re.compile(r"invalid argument|error while handling|invalid value|expected value")
UNDERSTOOD = re.compile(r"failed to load model|failed to open GGUF|error due to|exiting due to")


@pytest.fixture(scope="module")
def server() -> Path:
    return real_llama.genuine_server() or real_llama.shim_server()


def ends_with(server: Path, words: list[str], env: dict[str, str]) -> str:
    ended = subprocess.run(
        [server, *words],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **env},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    return (ended.stdout + ended.stderr).decode(errors="replace")


@pytest.mark.parametrize("path", golden.cases("llamacpp"), ids=lambda path: path.stem)
def test_the_real_parser_takes_every_golden_plan(server: Path, path: Path) -> None:
    launch = request(**golden.given(path))
    words = list(SPEC.plan(launch).argv)[launch.runtime == "process" :]
    output = ends_with(server, words, launch.env)
    assert not REFUSED.search(output), output
    assert UNDERSTOOD.search(output), output


@pytest.mark.parametrize(
    "words", [["--ctx-size=4096"], ["--ctx-size 4096"], ["-ctk", "fp8"], ["--port", "x"]]
)
def test_the_real_parser_refuses_what_we_believe_it_does(server: Path, words: list[str]) -> None:
    assert REFUSED.search(ends_with(server, ["-m", "/no.gguf", *words], {}))


def test_the_variable_that_keeps_a_cpu_lease_off_the_gpus_is_understood(server: Path) -> None:
    output = ends_with(server, ["-m", "/no.gguf"], {"LLAMA_ARG_DEVICE": "none"})
    assert not REFUSED.search(output)
    assert REFUSED.search(ends_with(server, ["-m", "/no.gguf"], {"LLAMA_ARG_DEVICE": "Bogus0"}))
