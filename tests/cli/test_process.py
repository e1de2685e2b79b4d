"""``enginectl`` as a process of its own: what it imports, its pipes and its signals."""

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rpc.fake import Served, view

CLI = (sys.executable, "-m", "supervisor.cli")
ROOT = Path(__file__).parents[2]
SOON_S = 50.0


def _run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *words], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False, env=env
    )


def test_it_imports_no_event_loop() -> None:
    code = (
        "import sys, supervisor.cli as cli; cli.main(['--help']);"
        "print(sorted({'asyncio', 'aiohttp', 'anyio', 'structlog', 'psutil'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_table_on_a_pipe(served: Served) -> None:
    served.supervisor.views["a"] = view("a")
    done = _run("--socket", served.path, "ps")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].startswith("a     vllm    ready  21000")


def test_text_that_the_terminals_encoding_lacks(served: Served, tmp_path: Path) -> None:
    served.supervisor.views["a"] = view("a")
    (tmp_path / "a.log").write_text("한국어\n", encoding="utf-8")
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = _run("--socket", served.path, "logs", "a", env=env)
    assert (done.returncode, done.stdout) == (0, "\\ud55c\\uad6d\\uc5b4\n")
    done = _run("--socket", served.path, "logs", "a", "--json")
    assert "한국어" in done.stdout


def test_a_reader_that_has_seen_enough(served: Served, tmp_path: Path) -> None:
    served.supervisor.views["a"] = view("a")
    (tmp_path / "a.log").write_text("a line of some length\n" * 10_000)
    command = f"{' '.join(CLI)} --socket {served.path} logs a -n 10000 | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a line of some length\n", "")


@contextmanager
def _interruptible() -> Iterator[None]:
    """For children: this run may be in the background, where a shell lets it ignore SIGINT, and
    what is ignored stays so over an exec.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _read(terminal: int, until: bytes) -> bytes:
    """What is written to it, up to these words."""
    shown, deadline = b"", time.monotonic() + SOON_S
    while until not in shown:
        left = deadline - time.monotonic()
        assert left > 0, f"no {until!r} in {shown!r}"
        if select.select([terminal], [], [], left)[0]:
            shown += os.read(terminal, 4096)
    return shown


def test_ctrl_c_on_a_terminal_leaves_the_launch_alone(served: Served) -> None:
    """Our own end stays open until all is read: with the last one the rest could be lost."""
    served.supervisor.slow["a"] = asyncio.Event()
    ours, theirs = pty.openpty()
    words = ("--socket", served.path, "launch", "a", "--engine", "vllm")
    with _interruptible():
        process = subprocess.Popen([*CLI, *words], stdout=theirs, stderr=theirs, cwd=ROOT)
    try:
        shown = _read(ours, b"reserved port")
        process.send_signal(signal.SIGINT)
        shown += _read(ours, b"enginectl cancel a")
        assert process.wait(SOON_S) == 130
        while select.select([ours], [], [], 0.2)[0]:
            shown += os.read(ours, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
    assert b"Traceback" not in shown
    served.release("a")
