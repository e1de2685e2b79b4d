"""``engined`` as a process, with this test in systemd's place: SYS-2, and a socket handed over."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from supervisor.client import Client
from supervisor.contracts.instance import LaunchParams
from supervisor.contracts.rpc import StopParams
from supervisor.daemon.activation import Activation, take
from supervisor.daemon.cgroup import _own as own_cgroup
from tests.parts.stub import stub_binary

WATCHDOG_S = 2.0
SOON_S = 20.0
ENGINED = [sys.executable, "-c", "from supervisor.daemon import main; raise SystemExit(main())"]
BETWEEN_US = {
    "INVOCATION_ID": "0123456789abcdef0123456789abcdef",
    "JOURNAL_STREAM": "8:4711",
    "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6)),
}


@dataclass(frozen=True)
class Message:
    at: float
    pid: int
    lines: dict[str, str]


class Systemd:
    """Starts a daemon, and hears what it says and which process said it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.heard: list[Message] = []
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.link.bind(str(folder / "notify"))
        self.socket = str(folder / "engined.sock")
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(
        self, env: Mapping[str, str] | None = None, fd: int | None = None
    ) -> "subprocess.Popen[bytes]":
        """With ``fd`` as the one descriptor that is handed over, as number 3."""
        script, own = 'exec "$@"', dict(os.environ)
        if fd is not None:
            script = f'export LISTEN_FDS=1 LISTEN_FDNAMES=rpc LISTEN_PID=$$; exec "$@" 3<&{fd}'
        own |= {
            "NOTIFY_SOCKET": str(self.folder / "notify"),
            "ENGINE_SUPERVISOR_SOCKET": self.socket,
            "ENGINE_SUPERVISOR_STATE_DIR": str(self.folder / "state"),
            "ENGINE_SUPERVISOR_LOG_DIR": str(self.folder / "log"),
        }
        with (self.folder / "stderr").open("ab") as stderr:
            process = subprocess.Popen(
                ["bash", "-c", script, "bash", *ENGINED],
                cwd=Path(__file__).parents[2],
                env=own | BETWEEN_US | dict(env or {}),
                pass_fds=() if fd is None else (fd,),
                stderr=stderr,
            )
        self.processes.append(process)
        return process

    def listen(self, until: Callable[[Message], bool], within: float = SOON_S) -> Message:
        """Hear messages up to the first of this kind, which is returned."""
        deadline = time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.link], [], [], left)[0]:
                message = self._receive()
                self.heard.append(message)
                if until(message):
                    return message
        raise AssertionError(f"not heard; but {self.heard}")

    def _receive(self) -> Message:
        size = struct.calcsize("3i")
        data, ancillary, _, _ = self.link.recvmsg(4096, socket.CMSG_SPACE(size))
        (pid, _, _) = struct.unpack("3i", ancillary[0][2][:size])
        lines = dict(line.split("=", 1) for line in data.decode().split("\n"))
        return Message(time.monotonic(), pid, lines)

    def said(self, key: str) -> list[Message]:
        return [message for message in self.heard if key in message.lines]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    systemd = Systemd(tmp_path)
    yield systemd
    systemd.link.close()
    for process in systemd.processes:
        process.terminate()
        assert process.wait(SOON_S) == 0, (tmp_path / "stderr").read_text()
    own = own_cgroup()
    for named in tmp_path.glob("state/supervisor-id"):
        assert own is None or not (own / f"engine-supervisor-{named.read_text().strip()}").exists()


def ready(message: Message) -> bool:
    return "READY" in message.lines


def says(status: str) -> Callable[[Message], bool]:
    return lambda message: message.lines.get("STATUS") == status


def launch(client: Client, folder: Path, **knobs: str) -> None:
    model = folder / "model.gguf"
    model.touch()
    binary = stub_binary(folder, **knobs)
    client.launch(LaunchParams(name="one", engine="llamacpp", model_path=str(model), binary=binary))


def test_one_ready_from_the_daemon_when_the_socket_answers(systemd: Systemd) -> None:
    daemon = systemd.start({"WATCHDOG_PID": "1"})
    message = systemd.listen(ready)
    with Client(systemd.socket) as client:
        assert client.info().pid == daemon.pid
        launch(client, systemd.folder, dump=str(systemd.folder / "dump"))
        systemd.listen(says("1 instance: 1 ready"))
        client.stop(StopParams(name="one"))
    systemd.listen(says("0 instances"))
    daemon.terminate()
    last = systemd.listen(lambda message: "STOPPING" in message.lines)
    assert daemon.wait(SOON_S) == 0

    assert message.lines["STATUS"] == "0 instances"
    assert len(systemd.said("READY")) == 1
    assert {heard.pid for heard in systemd.heard} == {daemon.pid}
    assert last.lines["STATUS"] == "Leaving; engines left running: 0"
    statuses = [status.at for status in systemd.said("STATUS")[:-1]]
    assert all(b - a > 0.9 for a, b in pairwise(statuses))
    assert not systemd.said("WATCHDOG"), "that watchdog is for another process"

    dumped: dict[str, Any] = json.loads((systemd.folder / "dump").read_text())
    told = {name for name in dumped["env"] if name.startswith(("LISTEN_", "NOTIFY_", "WATCHDOG_"))}
    assert not told | dumped["env"].keys() & BETWEEN_US.keys()


def test_pings_come_at_most_half_the_interval_apart(systemd: Systemd) -> None:
    daemon = systemd.start()
    systemd.listen(ready)
    began = time.monotonic()
    systemd.listen(lambda message: message.at > began + WATCHDOG_S)
    pings = [ping.at for ping in systemd.said("WATCHDOG")]
    assert len(pings) > 3
    assert max(b - a for a, b in pairwise(pings)) <= WATCHDOG_S / 2

    daemon.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    while select.select([systemd.link], [], [], 0)[0]:
        systemd.link.recv(4096)
    assert not select.select([systemd.link], [], [], 0.7 * WATCHDOG_S)[0], (
        "a stopped one says nothing"
    )
    daemon.send_signal(signal.SIGCONT)
    systemd.listen(lambda message: "WATCHDOG" in message.lines)


def test_a_reload_is_framed(systemd: Systemd) -> None:
    daemon = systemd.start()
    systemd.listen(ready)
    daemon.send_signal(signal.SIGHUP)
    systemd.listen(lambda message: "RELOADING" in message.lines)
    systemd.listen(ready)


def test_a_socket_that_is_handed_over_stays_and_its_clients_wait(systemd: Systemd) -> None:
    path = systemd.folder / "ours.sock"
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(str(path))
        ours.listen()
        with Client(str(path)) as waiting:
            for _ in range(2):
                waiting.close()
                daemon = systemd.start(fd=ours.fileno())
                about = waiting.info()  # connects before the daemon runs
                assert (about.pid, about.paths["socket"]) == (daemon.pid, str(path))
                waiting.close()
                daemon.terminate()
                assert daemon.wait(SOON_S) == 0
                assert path.is_socket()
    assert not Path(systemd.socket).exists(), "it made none of its own"


def test_a_descriptor_that_is_no_such_socket_is_refused(systemd: Systemd) -> None:
    with socket.socket() as stranger:
        daemon = systemd.start(fd=stranger.fileno())
        assert daemon.wait(SOON_S) == 69
    systemd.processes.clear()
    assert "no listening Unix stream socket" in (systemd.folder / "stderr").read_text()


def test_without_systemd_nothing_is_there() -> None:
    env = {"PATH": "/bin", "HOME": "/"}
    assert take(env) == Activation()
    assert env == {"PATH": "/bin", "HOME": "/"}


def test_what_is_meant_for_another_process_is_removed_all_the_same() -> None:
    env = {
        "PATH": "/bin",
        "NOTIFY_SOCKET": "",
        "LISTEN_PID": "1",
        "LISTEN_FDS": "2",
        "LISTEN_FDNAMES": "a:b",
        "WATCHDOG_USEC": "1000000",
        "WATCHDOG_PID": "1",
        **{"INVOCATION_ID": "x", "JOURNAL_STREAM": "1:2", "FDSTORE": "9"},
    }
    assert take(env) == Activation()
    assert env == {"PATH": "/bin"}


@pytest.mark.parametrize("usec", ["", "0", "-5", "soon", "٣"])
def test_a_watchdog_that_makes_no_sense_is_none(usec: str) -> None:
    assert take({"WATCHDOG_USEC": usec}).watchdog_s is None
    assert take({"WATCHDOG_USEC": "1500000"}).watchdog_s == 1.5
