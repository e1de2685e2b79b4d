"""``enginectl`` where its output goes nowhere, and words that make no sense."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from supervisor.contracts import rpc
from tests.cli.conftest import Run
from tests.cli.test_process import CLI, ROOT
from tests.rpc.fake import Served, view


def shell(command: str, *, expect: int) -> tuple[str, str]:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == expect, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("words", ["ps", "ps --json", "logs a", "--help", "ps --help", "--version"])
def test_a_full_disk_behind_stdout_is_one_line_and_a_failure(
    served: Served, tmp_path: Path, words: str
) -> None:
    served.supervisor.views["a"] = view("a")
    (tmp_path / "a.log").write_text("a line\n")
    command = f"{' '.join(CLI)} --socket {served.path} {words} >/dev/full"
    _, err = shell(command, expect=1)
    assert err == "enginectl: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("words", ["ps", "ps --json", "--help"])
def test_a_reader_that_is_gone_is_no_failure(served: Served, words: str) -> None:
    """It has seen what it wanted, as `head` does."""
    served.supervisor.views["a"] = view("a")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*CLI, "--socket", served.path, *words.split()],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_stderr_that_takes_nothing_changes_no_exit_code(served: Served) -> None:
    cli = f"{' '.join(CLI)} --socket {served.path}"
    shell(f"{cli} stop nobody 2>/dev/full", expect=4)
    shell(f"{cli} stop nobody --json 2>/dev/full", expect=4)
    shell(f"{cli} nonsense 2>/dev/full", expect=2)
    shell(f"{cli} stop nobody 2>&-", expect=4)
    shell(f"{cli} ps >&-", expect=0)  # who closes it wants nothing of it


@pytest.mark.parametrize(
    "words",
    [
        ("--json",),
        ("nonsense", "--json"),
        ("launch", "--json"),
        ("launch", "a", "--engine", "nope", "--json"),
        ("--json", "stop", "a", "--grace", "soon"),
        ("ps", "--json", "--", "x"),
        ("events", "--json", "--after", "e:three"),
        ("launch", "a", "--json", "--engine", "vllm", "--command"),
        ("rpc", "supervisor.info", "{nonsense", "--json"),
    ],
)
def test_wrong_usage_under_json_is_an_error_object(run: Run, words: tuple[str, ...]) -> None:
    found = run(*words)
    assert (found.code, found.out, found.err.count("\n")) == (2, "", 1)
    error = json.loads(found.err)
    assert error["code"] == rpc.INVALID_PARAMS
    assert error["message"]


def test_json_behind_the_dashes_is_the_engines(run: Run) -> None:
    found = run("launch", "a", "--engine", "nope", "--", "--json")
    assert found.code == 2
    assert found.err.startswith("usage: ")


def test_config_check_takes_ordinary_files_only(run: Run, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, Path("/dev/zero")):
        found = run("config", "check", str(path))
        assert (found.code, "no ordinary file" in found.err) == (1, True)
