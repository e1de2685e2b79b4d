"""Whose the socket is, and who may come in by it."""

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.rpc.socket import Listener, SocketError, listen


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "d" / "engined.sock")


@pytest.fixture
def listener(place: str) -> Iterator[Listener]:
    made = listen(place)
    yield made
    made.close()


def test_directory_and_socket_are_the_owners_alone(place: str, listener: Listener) -> None:
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(place)).st_mode) == 0o700
    assert not os.get_inheritable(listener.sock.fileno())


def test_no_moment_shows_the_socket_to_others(tmp_path: Path) -> None:
    """RPC-4."""
    place = str(tmp_path / "engined.sock")
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            try:
                seen.append(stat.S_IMODE(os.stat(place).st_mode))
            except FileNotFoundError:
                continue

    watcher = threading.Thread(target=watch)
    before = os.umask(0)
    watcher.start()
    try:
        for _ in range(100):
            listen(place).close()
    finally:
        done.set()
        watcher.join()
        assert os.umask(before) == 0
    assert set(seen) <= {0o600}


def test_the_configured_mode_comes_last(tmp_path: Path) -> None:
    made = listen(str(tmp_path / "s"), 0o660)
    assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o660
    made.close()


def test_closing_takes_the_file_away_unless_it_is_anothers(place: str) -> None:
    made = listen(place)
    made.close()
    assert not os.path.exists(place)
    made = listen(place)
    os.unlink(place)
    Path(place).write_text("another's")
    made.close()
    assert Path(place).read_text() == "another's"


def test_a_stale_socket_is_taken_over(place: str, listener: Listener) -> None:
    """RPC-1."""
    listener.sock.close()
    again = listen(place)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(place)
    again.close()


def test_a_socket_that_answers_stays(place: str, listener: Listener) -> None:
    with pytest.raises(SocketError, match="already running"):
        listen(place)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(place)


def test_a_socket_whose_daemon_is_frozen_stays(place: str, listener: Listener) -> None:
    """Nobody accepts; when the backlog is full the kernel says "try again", and not "refused"."""
    listener.sock.listen(0)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    try:
        for client in clients:
            client.setblocking(False)
            client.connect_ex(place)
        with pytest.raises(SocketError, match="already running"):
            listen(place)
    finally:
        for client in clients:
            client.close()


def test_of_many_starts_at_once_one_wins(place: str, listener: Listener) -> None:
    """RPC-1."""
    listener.sock.close()
    won: list[Listener] = []
    lost: list[SocketError] = []

    def start() -> None:
        try:
            won.append(listen(place))
        except SocketError as error:
            lost.append(error)

    starters = [threading.Thread(target=start) for _ in range(10)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert (len(won), len(lost)) == (1, 9)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(place)
    won[0].close()


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_what_is_no_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    """RPC-1."""
    place = tmp_path / "engined.sock"
    match kind:
        case "file":
            place.write_text("precious")
        case "link":
            place.symlink_to(tmp_path / "nowhere")
        case _:
            place.mkdir()
    before = os.lstat(place)
    with pytest.raises(SocketError, match="not a socket"):
        listen(str(place))
    assert os.lstat(place) == before


def test_a_path_that_is_too_long_names_the_limit(tmp_path: Path) -> None:
    """RPC-4."""
    with pytest.raises(SocketError, match="limit is 107"):
        listen(str(tmp_path / ("x" * 120) / "s"))


def test_a_directory_that_everyone_may_write_is_refused(tmp_path: Path) -> None:
    """RPC-4."""
    tmp_path.chmod(0o777)
    with pytest.raises(SocketError, match="can be written by everyone"):
        listen(str(tmp_path / "s"))
    tmp_path.chmod(0o1777)
    listen(str(tmp_path / "s")).close()


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SocketError, match="cannot listen at"):
        listen(str(tmp_path / "file" / "s"))
