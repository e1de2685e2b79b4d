"""``engine.detect`` among real processes: ours, strangers, zombies, passers-by (PID-4, ORP-7)."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.rpc import DetectedEngine
from supervisor.lifecycle.detecting import Seen, detected
from tests.lifecycle.house import A, Home, free_port, pid_of
from tests.parts import real_llama
from tests.parts.stub import stub_binary

pytestmark = pytest.mark.anyio

SLEEP = "import time; time.sleep(600)"


async def entry(home: Home, pid: int) -> DetectedEngine | None:
    found = {it.pid: it for it in (await home.supervisor.detect()).engines}
    return found.get(pid)


def script(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{SLEEP}\n")
    path.chmod(0o755)
    return path


@contextmanager
def running(*argv: str | Path, **rest: Any) -> Iterator[int]:
    with subprocess.Popen(argv, **rest) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def dead_and_unreaped() -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return process


async def test_a_real_server_of_ours(home: Home) -> None:
    server, model = real_llama.require("genuine-llama-server"), real_llama.tiny_gguf()
    view = await home.launch(binary=str(server), model_path=str(model), served_model_name="n")
    found = await entry(home, pid_of(view))
    assert found is not None
    assert (found.engine, found.model, found.served_model_name) == ("llamacpp", str(model), "n")
    assert found.port == view.record.port
    assert found.listening == (view.record.port,)
    assert found.instance == "x"
    assert found.devices == ("cpu:0",)
    assert found.masks is not None
    assert found.masks["CUDA_VISIBLE_DEVICES"] == ""  # a CPU lease hides every GPU
    await home.stop()
    assert await entry(home, pid_of(view)) is None


HARD_PATHS = {
    "spaces": "a b  c.gguf",
    "quotes": 'it\'s "quoted" `so`.gguf',
    "dollar": "$HOME ${PATH} $(id).gguf",
    "percent": "%s %n 100%.gguf",
    "newline": "two\nlines\ttab.gguf",
    "emoji": "🦙 ünï.gguf",
    "dash": "-m --model=x.gguf",
    "backslash": "a\\b\\ c.gguf",
    "equals": "--port=1.gguf",
    "long": "x" * 195 + ".gguf",
}


@pytest.mark.parametrize("kind", HARD_PATHS)
async def test_a_hard_path_comes_back_as_it_went(home: Home, tmp_path: Path, kind: str) -> None:
    """ARG-3: out of the command line of the process alone, and for our own."""
    model = tmp_path / "-models of $HOME" / HARD_PATHS[kind]
    model.parent.mkdir()
    model.touch()
    binary = stub_binary(tmp_path, "llama-server")
    view = await home.launch(binary=binary, model_path=str(model), served_model_name="a b/c")
    ours = await entry(home, pid_of(view))
    assert ours is not None
    assert (ours.engine, ours.model, ours.served_model_name) == ("llamacpp", str(model), "a b/c")
    assert ours.port == view.record.port
    with running(binary, "--model", model, "--port", str(free_port())) as pid:
        stranger = await found_soon(home, pid)
        assert (stranger.engine, stranger.model) == ("llamacpp", str(model))
        assert stranger.instance is None
    await home.stop()


async def found_soon(home: Home, pid: int) -> DetectedEngine:
    """Once it is what it was started as: a script is its interpreter's for a moment."""
    with anyio.fail_after(10):
        while (found := await entry(home, pid)) is None:  # noqa: ASYNC110 - no event tells
            await anyio.sleep(0.05)
    return found


async def test_a_title_of_its_own_is_known_by_the_record(home: Home) -> None:
    """The stub's command line says ``llama-server-0``, which no table knows."""
    view = await home.launch(devices=(A,))
    found = await entry(home, pid_of(view))
    assert found is not None
    assert (found.engine, found.instance, found.devices) == ("llamacpp", "x", (A,))
    await home.stop()


async def test_strangers_and_engines_that_others_started(home: Home, tmp_path: Path) -> None:
    engine = script(tmp_path, "bin/vllm")
    tabby = script(tmp_path, "tabbyAPI/main.py")
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-1"}
    with (
        running(engine, "serve", "M", "--port", "81", env=env) as served,
        running(engine, "bench", "serve", "--model", "M") as bench,
        running(sys.executable, "main.py", cwd=tabby.parent) as main,
        running(sys.executable, "-c", SLEEP, "vllm", "serve", "M") as sleeper,
    ):
        with anyio.fail_after(20):
            while (ours := await entry(home, served)) is None:  # noqa: ASYNC110
                await anyio.sleep(0.02)  # until it has become its program
            while (there := await entry(home, main)) is None:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert (ours.engine, ours.model, ours.port) == ("vllm", "M", 81)
        assert ours.instance is None
        assert ours.devices is UNSET
        assert ours.masks == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
        assert (there.engine, there.port) == ("exllamav3", 5000)
        assert await entry(home, bench) is None
        assert await entry(home, sleeper) is None


async def test_a_zombie_and_fifty_passers_by(home: Home) -> None:
    zombie = dead_and_unreaped()
    over = threading.Event()

    def pass_by() -> None:
        for _ in range(50):
            subprocess.run(["/bin/true"], check=True)
        over.set()

    passing = threading.Thread(target=pass_by)
    passing.start()
    try:
        while not over.is_set():
            reply = await home.supervisor.detect()
            assert zombie.pid not in {it.pid for it in reply.engines}
    finally:
        await anyio.to_thread.run_sync(passing.join)
        zombie.wait()


async def test_ours_is_told_by_nonce_before_pid(home: Home) -> None:
    view = await home.launch()
    record = view.record
    pid = pid_of(view)
    serving = ("vllm", "serve", "M")

    def owner(seen: Seen) -> str | None:
        (found,) = detected({seen.pid: seen}, {"x": record})
        return found.instance

    named = {"ENGINE_SUPERVISOR_NONCE": record.nonce}
    assert owner(Seen(pid, 1, serving)) == "x"
    assert owner(Seen(pid + 1, 1, serving)) is None
    assert owner(Seen(pid + 1, 1, serving, env=named)) == "x"
    assert owner(Seen(pid, 1, serving, env={"ENGINE_SUPERVISOR_NONCE": "another's"})) is None
    await home.stop()


async def test_workers_are_no_engines_of_their_own(home: Home) -> None:
    view = await home.launch()
    serving = ("python", "-m", "sglang.launch_server", "--model-path", "M")
    others = {
        10: Seen(10, 1, serving),
        11: Seen(11, 10, serving),  # forked, and not renamed yet
        12: Seen(12, 10, ("sglang::scheduler",)),
        13: Seen(13, 1, ("my title",), exe="/x/llama-server.real (deleted)"),
    }
    gone = replace(view.record, ref=None)
    found = detected(others, {"x": gone})
    assert [(it.pid, it.engine) for it in found] == [(10, "sglang"), (13, "llamacpp")]
    await home.stop()
