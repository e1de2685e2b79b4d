"""A real llama-server is started with planned command lines, and asked what it made of them."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.engines.llamacpp import SPEC
from tests.engines.requests import request
from tests.parts import real_llama

LONG_S = 60.0


@pytest.fixture(scope="module")
def server() -> Path:
    return real_llama.genuine_server() or real_llama.shim_server()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LONG_S) as reply:
        return json.load(reply)


@contextmanager
def serving(server: Path, tmp_path: Path, **changes: Any) -> Iterator[int]:
    """The plan of a launch, run, until it is ready; its port."""
    model, port = real_llama.tiny_gguf(), free_port()
    launch = request(binary=str(server), modelPath=str(model), port=port, **changes)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **launch.env}
    with (tmp_path / "log").open("wb") as log:
        engine = subprocess.Popen(SPEC.plan(launch).argv, env=env, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline and engine.poll() is None:
            try:
                get(port, "/health")
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.05)
        assert engine.poll() is None, (tmp_path / "log").read_text(errors="replace")
        yield port
    finally:
        engine.kill()
        engine.wait()


@pytest.mark.parametrize("extra", [["--ctx-size=1024"], ["--ctx-size 1024"], ["-c", "1024"]])
def test_a_flag_in_any_form_is_one_that_it_takes(
    server: Path, tmp_path: Path, extra: list[str]
) -> None:
    """ARG-1; and what we would have said ourselves is gone."""
    options = {"maxContextLength": 512, "maxConcurrentRequests": 1}
    with serving(server, tmp_path, extraArgs=extra, options=options) as port:
        assert get(port, "/props")["default_generation_settings"]["n_ctx"] == 1024


def test_a_request_gets_the_context_that_was_asked_for(server: Path, tmp_path: Path) -> None:
    options = {"maxContextLength": 512, "maxConcurrentRequests": 2}
    with serving(server, tmp_path, options=options, servedModelName="org/tiny:q4") as port:
        props = get(port, "/props")
        assert props["total_slots"] == 2
        assert props["default_generation_settings"]["n_ctx"] == 512
        assert get(port, "/v1/models")["data"][0]["id"] == "org/tiny:q4"
