"""RPC-1: whose the control socket is, with real daemons that want it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.engined import ROOT, SOON, Engined, refused, serves, stop

STARTERS = 10


def test_after_a_kill_it_is_taken_over_at_once(engined: Engined) -> None:
    """The machine is shared, so it is the best of three that counts."""
    took = []
    for _ in range(3):
        engined.start()
        engined.end(signal.SIGKILL)
        assert engined.socket.is_socket()
        began = time.monotonic()
        assert engined.start().info().counts == {}
        took.append(time.monotonic() - began)
        engined.end(signal.SIGKILL)
    assert min(took) < 1


def test_of_ten_that_start_at_once_one_lives(engined: Engined) -> None:
    command = [
        *(sys.executable, "-c", "from supervisor.daemon import main; raise SystemExit(main())"),
        *("--config", str(engined.config)),
    ]
    daemons = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(STARTERS)
    ]
    try:
        deadline = time.monotonic() + SOON * 2
        while sum(it.poll() is None for it in daemons) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        [winner] = [it for it in daemons if it.poll() is None]
        client = engined.client()
        while not engined.socket.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert client.info().pid == winner.pid
        view = client.launch(engined.params())
        assert serves(view.record.port)
        stop(client)
        for loser in daemons:
            if loser is winner:
                continue
            assert loser.returncode == 69
            assert loser.stderr is not None
            last = loser.stderr.read().decode().splitlines()[-1]
            assert last.startswith("engined: ")
            assert "another" in last or "already running" in last
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.communicate()


def file(path: Path) -> None:
    path.write_text("precious")


def dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("put", [file, dangling_link, folder])
def test_what_is_no_socket_is_not_replaced(engined: Engined, put: Callable[[Path], None]) -> None:
    put(engined.socket)
    before = os.lstat(engined.socket)
    done = refused(engined.config)
    assert done.returncode == 69
    line = done.stderr.decode().splitlines()[-1]
    assert line.startswith("engined: ")
    assert str(engined.socket) in line
    assert os.lstat(engined.socket) == before
    if put is file:
        assert engined.socket.read_text() == "precious"


def test_a_frozen_daemon_keeps_its_socket_and_its_state(engined: Engined, tmp_path: Path) -> None:
    """Whoever shares only the socket with it is refused as well, though it does not answer."""
    client = engined.start()
    other = tmp_path / "other.toml"
    other.write_text(
        f'socket = "{engined.socket}"\nstate-dir = "{tmp_path}/state2"\n'
        f'log-dir = "{tmp_path}/log2"\n'
    )
    os.kill(engined.pid, signal.SIGSTOP)
    try:
        for config in (engined.config, other):
            done = refused(config)
            assert done.returncode == 69
            assert done.stderr.decode().splitlines()[-1].startswith("engined: ")
    finally:
        os.kill(engined.pid, signal.SIGCONT)
    assert client.info().pid == engined.pid
    assert client.launch(engined.params()).state == "ready"
    stop(client)
