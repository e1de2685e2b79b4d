"""``enginectl`` against the real daemon: what it exits with when that refuses, or dies."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.daemon.engined import ROOT, Engined, stop

SOON_S = 30.0


def command(engined: Engined, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "supervisor.cli", "--socket", str(engined.socket), *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(engined: Engined, *words: str) -> tuple[int, str, str]:
    process = command(engined, *words)
    out, err = process.communicate(timeout=SOON_S)
    return process.returncode, out, err


def test_a_reload_that_is_refused_is_no_missing_daemon(engined: Engined) -> None:
    engined.start()
    engined.config.write_text("nonsense")
    code, out, err = run(engined, "reload")
    assert (code, out) == (1, "")
    assert "the configuration stays as it was" in err


def test_a_pin_that_cannot_be_written_is_no_missing_daemon(engined: Engined) -> None:
    engined.start()
    (engined.folder / "state" / "instances" / "p.json").mkdir()
    code, out, err = run(engined, "pin", "p", "--engine", "vllm", "--device", "cpu:0")
    assert (code, out) == (1, "")
    assert "cannot be written down" in err


def test_to_wait_for_what_has_ended_is_not_ready_and_for_nobody_is_no_instance(
    engined: Engined,
) -> None:
    client = engined.start()
    client.launch(engined.params("x"))
    stop(client, "x")
    code, out, err = run(engined, "wait", "x")
    assert (code, out) == (3, "")
    assert "x has ended" in err
    assert run(engined, "wait", "x", "--for", "exited")[0] == 0
    assert run(engined, "wait", "nobody")[0] == 4


@pytest.mark.parametrize("json_", [False, True])
def test_a_launch_whose_daemon_dies_says_that_it_goes_on(engined: Engined, json_: bool) -> None:
    client = engined.start()
    binary = engined.stub(load=2)
    model = engined.folder / "model.gguf"
    model.touch()
    words = ["launch", "a", "--engine", "llamacpp", "--model-path", str(model)]
    flags = ["--binary", binary, "--devices", "cpu:0", *(["--json"] if json_ else [])]
    process = command(engined, *words, *flags)
    deadline = time.monotonic() + SOON_S
    while "spawned" not in engined.story("a"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    engined.end(signal.SIGKILL)
    out, err = process.communicate(timeout=SOON_S)
    assert (process.returncode, out) == (69, "")
    said = json.loads(err)["message"] if json_ else err
    assert "goes on" in said
    assert "enginectl wait a" in said
    client = engined.start()
    assert run(engined, "wait", "a")[0] == 0
    stop(client, "a")


def test_no_daemon_at_all_is_told_as_before(engined: Engined, tmp_path: Path) -> None:
    code, _, err = run(engined, "launch", "a", "--engine", "vllm", "--model-path", "/m")
    assert code == 69
    assert "goes on" not in err
    assert "Start it with `engined`" in err
