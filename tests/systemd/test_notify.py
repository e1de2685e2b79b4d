"""What is said to systemd, and what comes out of its store: against a datagram socket."""

import array
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from supervisor.daemon.notify import FdStore, Notifier


class Manager:
    """The other end of ``NOTIFY_SOCKET``."""

    def __init__(self, address: str) -> None:
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.link.bind(address)
        self.link.setblocking(False)

    def hear(self) -> tuple[list[str], list[int]]:
        room = socket.CMSG_SPACE(16 * array.array("i").itemsize)
        data, ancillary, _, _ = self.link.recvmsg(4096, room)
        fds = array.array("i")
        for _, kind, passed in ancillary:
            assert kind == socket.SCM_RIGHTS
            fds.frombytes(passed)
        return data.decode().split("\n"), list(fds)

    def silent(self) -> bool:
        try:
            self.link.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        return False


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "notify")


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    manager = Manager(address)
    yield manager
    manager.link.close()


def test_a_message_is_one_datagram_of_lines(address: str, manager: Manager) -> None:
    assert Notifier(address).send("READY=1", "STATUS=fine")
    assert manager.hear() == (["READY=1", "STATUS=fine"], [])


def test_an_address_may_be_abstract() -> None:
    name = f"engine-supervisor-test-{os.getpid()}"
    manager = Manager(f"\0{name}")
    assert Notifier(f"@{name}").send("READY=1")
    assert manager.hear() == (["READY=1"], [])
    manager.link.close()


def test_without_systemd_everything_is_said_to_nobody() -> None:
    notifier = Notifier(None)
    store = FdStore(notifier)
    with notifier.reloading():
        store.keep("engine-a", 0)
    store.drop("engine-a")
    store.drop_unknown([])
    assert notifier.send("READY=1")
    assert not notifier.listening


def test_trouble_is_told_once_and_raises_nothing(tmp_path: Path) -> None:
    notifier = Notifier(str(tmp_path / "nobody"))
    with capture_logs() as logged:
        assert not notifier.send("READY=1")
        assert not notifier.send("WATCHDOG=1")
    assert [entry["event"] for entry in logged] == ["systemd cannot be told"]


def test_a_systemd_that_does_not_read_is_not_waited_for(address: str, manager: Manager) -> None:
    notifier = Notifier(address)
    with capture_logs():
        sent = [notifier.send("WATCHDOG=1") for _ in range(10_000)]
    assert not all(sent)


def test_a_reload_has_a_begin_with_its_time_and_an_end(address: str, manager: Manager) -> None:
    with Notifier(address).reloading():
        (reloading, stamp), _ = manager.hear()
        assert manager.silent()
    assert reloading == "RELOADING=1"
    assert stamp.removeprefix("MONOTONIC_USEC=").isdecimal()
    assert manager.hear() == (["READY=1"], [])


def test_a_kept_descriptor_arrives_under_its_name_once(address: str, manager: Manager) -> None:
    store = FdStore(Notifier(address))
    read, write = os.pipe()
    store.keep("engine-a", read)
    store.keep("engine-a", read)
    lines, (arrived,) = manager.hear()
    assert lines == ["FDSTORE=1", "FDNAME=engine-a", "FDPOLL=0"]
    assert os.path.samestat(os.fstat(arrived), os.fstat(read))
    assert manager.silent()
    for fd in (read, write, arrived):
        os.close(fd)


def test_what_is_dropped_is_forgotten_by_systemd_too(address: str, manager: Manager) -> None:
    read, write = os.pipe()
    store = FdStore(Notifier(address), {"engine-a": read})
    store.keep("engine-a", write)
    assert manager.silent(), "systemd has it still, from the daemon before"
    store.drop("engine-a")
    assert manager.hear() == (["FDSTOREREMOVE=1", "FDNAME=engine-a"], [])
    assert not store.stored
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)
    store.drop("engine-a")
    assert manager.silent()
    os.close(write)


def test_what_belongs_to_no_record_goes_and_what_was_taken_stays(
    address: str, manager: Manager
) -> None:
    read, write = os.pipe()
    store = FdStore(Notifier(address), {"engine-a-1": read, "engine-b-2": write})
    assert store.take("engine-a-1") == read
    store.drop_unknown(["a"])
    assert manager.hear() == (["FDSTOREREMOVE=1", "FDNAME=engine-b-2"], [])
    assert manager.silent()
    os.close(read)
