"""The shipped units under a real systemd: what becomes of engines when the daemon comes and goes.

One machine for the whole module, and two engines that every test must leave as they are.
"""

import json
import platform
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.client import Client
from supervisor.contracts.instance import ExitInfo, InstanceView, LaunchParams, ProcessHandle
from supervisor.contracts.rpc import StopParams
from tests.parts.stub import interpreter, stub_binary
from tests.parts.systemd import Machine, booted, require_systemd, until

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "systemd"
SOCKET = "/run/engine-supervisor/engined.sock"
ENGINES = ("one", "two")
FASTER = """\
[Service]
WatchdogSec=2s
RestartSec=300ms
"""


KEEPER = """\
[Service]
Type=notify
ExecStart={python} -m tests.systemd.keeper
WorkingDirectory={root}
User=nobody
KillMode=process
Delegate=yes
FileDescriptorStoreMax=8
Restart=always
RestartSec=300ms
"""


class Host:
    """The machine with our units installed, as docs/systemd.md says it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.run = machine.run
        self.engines: dict[str, int] = {}

    def install(self) -> None:
        engined = Path(sys.executable).with_name("engined")
        for place in (engined, Path(sys.executable), Path(interpreter()), ROOT / "supervisor"):
            self.machine.open_to_all(place)
        service = (SHIPPED / "engined.service").read_text()
        shipped_path = "/opt/engine-supervisor/bin/engined"
        assert shipped_path in service
        service = service.replace(shipped_path, str(engined))
        self.write("/etc/systemd/system/engined.service", service)
        self.write("/etc/systemd/system/engined.socket", (SHIPPED / "engined.socket").read_text())
        for kind in ("sysusers.d", "tmpfiles.d"):
            text = (SHIPPED / kind / "engine-supervisor.conf").read_text()
            self.write(f"/etc/{kind}/engine-supervisor.conf", text)
        config = (ROOT / "config.example.toml").read_text()
        self.write("/etc/engine-supervisor/engined.toml", config)
        self.write("/etc/systemd/system/engined.service.d/faster.conf", FASTER)
        self.write("/srv/model.gguf", "")
        stub_binary(self.machine.path("/srv"), children="session,detached", on_term="7")
        self.run("systemd-sysusers")
        self.run("systemd-tmpfiles", "--create", "engine-supervisor.conf")
        self.run("systemctl", "daemon-reload")

    def write(self, inside: str, text: str) -> None:
        self.machine.write(inside, text)

    def client(self) -> Client:
        return Client(str(self.machine.path(SOCKET)))

    def views(self, *, ended: bool = False) -> dict[str, InstanceView]:
        with self.client() as client:
            return {view.record.name: view for view in client.list(ended=ended).instances}

    def launch(self, name: str) -> int:
        params = LaunchParams(
            name=name, engine="llamacpp", model_path="/srv/model.gguf", binary="/srv/llama-server"
        )
        with self.client() as client:
            return pid_of(client.launch(params))

    def main_pid(self) -> int:
        return int(self.machine.show("engined", "MainPID"))

    def alive(self, pid: int) -> bool:
        return self.machine.path(f"/proc/{pid}/exe").is_symlink()

    def untouched(self) -> bool:
        """Both engines are the same processes, and listed as ready."""
        views = self.views()
        return self.engines == {name: pid_of(views[name]) for name in ENGINES} and all(
            views[name].state == "ready" and self.alive(pid) for name, pid in self.engines.items()
        )

    def replaced(self, before: int) -> bool:
        """Another daemon than the one with that pid is up."""
        state = self.machine.show("engined", "ActiveState")
        return state == "active" and self.main_pid() not in (0, before)

    def journal(self) -> list[str]:
        return self.run("journalctl", "-u", "engined", "-o", "cat").splitlines()


def pid_of(view: InstanceView) -> int:
    assert isinstance(view.record.ref, ProcessHandle)
    return view.record.ref.pid


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    require_systemd()
    with booted(tmp_path_factory.mktemp("systemd")) as machine:
        host = Host(machine)
        host.install()
        host.run("systemctl", "start", "engined.socket")
        before = machine.show("engined", "ActiveState")
        host.engines = {name: host.launch(name) for name in ENGINES}
        assert before == "inactive", "the first connection is what starts the daemon"
        yield host


@pytest.fixture(autouse=True)
def _engines_go_on(host: Host) -> Iterator[None]:
    yield
    assert host.untouched()


def test_the_unit_is_ready_and_says_how_many_there_are(host: Host) -> None:
    until(lambda: host.machine.show("engined", "StatusText") == "2 instances: 2 ready")
    assert host.machine.show("engined", "SubState") == "running"


def test_the_socket_is_the_socket_units(host: Host) -> None:
    told = host.run("stat", "--format=%U %G %a", SOCKET)
    assert told == "engine-supervisor engine-supervisor 660"
    with host.client() as client:
        assert client.info().paths["socket"] == SOCKET


def test_the_daemon_sits_beside_the_engines_and_not_above_them(host: Host) -> None:
    unit = host.machine.show("engined", "ControlGroup")
    daemon = host.run("cat", f"/proc/{host.main_pid()}/cgroup").splitlines()[-1]
    assert daemon == f"0::{unit}/supervisor"
    assert not host.run("cat", f"/sys/fs/cgroup{unit}/cgroup.subtree_control")


def test_each_engine_has_a_cgroup_of_its_own(host: Host) -> None:
    """Made and joined by a daemon that is not root, in what the unit was delegated."""
    unit = host.machine.show("engined", "ControlGroup")
    for name, pid in host.engines.items():
        place = host.run("cat", f"/proc/{pid}/cgroup").splitlines()[-1]
        assert place.startswith(f"0::{unit}/engines/{name}-")
        assert place.endswith(f"-{pid}")


def test_engines_inherit_nothing_that_is_between_systemd_and_the_daemon(host: Host) -> None:
    daemon = str(host.main_pid())
    for pid in map(str, host.engines.values()):
        environment = host.machine.path(f"/proc/{pid}/environ").read_bytes()
        for name in (b"NOTIFY_", b"WATCHDOG_", b"LISTEN_", b"INVOCATION_ID", b"JOURNAL_STREAM"):
            assert name not in environment
        assert b"XDG_CACHE_HOME=/var/cache/engine-supervisor" in environment.split(b"\0")
        assert host.run("ps", "-o", "nice=", "-p", pid).strip() == "0"
        assert host.run("cat", f"/proc/{pid}/oom_score_adj") == "0"
    assert host.run("ps", "-o", "nice=", "-p", daemon).strip() == "-5"
    assert host.run("ps", "-o", "user:32=", "-p", daemon) == "engine-supervisor"


def test_a_restart_leaves_engines_running_and_clients_waiting(host: Host) -> None:
    """A connection may be hung up on, but never refused."""
    refused: list[OSError] = []
    done = threading.Event()

    def keep_connecting() -> None:
        while not done.is_set():
            with socket.socket(socket.AF_UNIX) as link:
                try:
                    link.connect(str(host.machine.path(SOCKET)))
                except OSError as error:
                    refused.append(error)
            time.sleep(0.005)

    before = host.main_pid()
    connecting = threading.Thread(target=keep_connecting)
    connecting.start()
    try:
        host.run("systemctl", "restart", "engined")
        assert host.replaced(before)
        assert host.untouched()
    finally:
        done.set()
        connecting.join()
    assert not refused


def test_a_killed_daemon_is_started_again_and_adopts(host: Host) -> None:
    """SYS-1."""
    before = host.main_pid()
    host.run("kill", "-KILL", str(before))
    assert host.untouched(), "the client waited for the new daemon"
    assert host.replaced(before)


def test_a_reload_reopens_the_journal(host: Host) -> None:
    events = "/var/log/engine-supervisor/events.jsonl"
    before = host.main_pid()
    host.run("mv", events, f"{events}.moved")
    host.run("systemctl", "reload", "engined")
    until(lambda: host.machine.show("engined", "SubState") == "running")
    assert host.main_pid() == before
    host.launch("passing")
    with host.client() as client:
        client.stop(StopParams(name="passing"))
    until(host.machine.path(events).exists)


def test_the_daemons_log_is_json(host: Host) -> None:
    own = ("journalctl", "_SYSTEMD_UNIT=engined.service", "_COMM=engined", "-o", "cat")
    lines = host.run(*own).splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert "serving" in events


def test_a_daemon_that_hangs_is_replaced(host: Host) -> None:
    before = host.main_pid()
    host.run("kill", "-STOP", str(before))
    until(lambda: host.replaced(before))
    journal = host.journal()
    assert any("Watchdog timeout" in line for line in journal)
    assert "Fatal Python error: Aborted" in journal, "and where it was stuck"


def test_a_stop_ends_the_daemon_alone(host: Host) -> None:
    """SYS-1."""
    host.run("systemctl", "stop", "engined.service")
    assert host.machine.show("engined", "ActiveState") == "inactive"
    assert all(host.alive(pid) for pid in host.engines.values())
    assert host.untouched(), "and whoever asks starts the next one"


def test_without_its_socket_the_daemon_stops_and_with_it_the_socket_is_back(host: Host) -> None:
    host.run("systemctl", "stop", "engined.socket")
    assert host.machine.show("engined", "ActiveState") == "inactive"
    assert not host.machine.path(SOCKET).exists()
    assert all(host.alive(pid) for pid in host.engines.values())
    host.run("systemctl", "start", "engined.service")
    assert host.machine.show("engined.socket", "ActiveState") == "active"


def test_the_exit_of_an_engine_is_known_though_no_daemon_saw_it(host: Host) -> None:
    pid = host.launch("brief")
    host.run("sh", "-c", f"kill -KILL {host.main_pid()} && kill -TERM {pid}")
    until(lambda: not host.alive(pid))
    until(lambda: host.views(ended=True)["brief"].state == "exited")
    ended = host.views(ended=True)["brief"].exit
    assert isinstance(ended, ExitInfo)
    assert ended.exit_code == 7


def test_a_pidfd_waits_in_the_fd_store(host: Host) -> None:
    """The store, and a delegated cgroup that is divided, without the rest of the daemon."""
    for folder in ("tests", "tests/systemd"):
        host.machine.open_to_all(ROOT / folder / "keeper.py")
    text = KEEPER.format(python=sys.executable, root=ROOT)
    host.write("/run/systemd/system/keeper.service", text)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", "keeper")
    pid, root = status(host).split()
    assert root == f"/sys/fs/cgroup{host.machine.show('keeper', 'ControlGroup')}/engines"
    assert host.run("stat", "--format=%U", root) == "nobody"
    assert host.machine.show("keeper", "NFileDescriptorStore") == "1"

    host.run("systemctl", "restart", "keeper")
    assert status(host) == "it lives"
    assert host.machine.show("keeper", "NFileDescriptorStore") == "1"

    daemon = host.machine.show("keeper", "MainPID")
    host.run("sh", "-c", f"kill -KILL {daemon} && kill -TERM {pid}")
    until(lambda: status(host).startswith("exit: "))
    told = status(host)
    assert "SIGTERM" in told or kernel() < (6, 15), told
    until(lambda: host.machine.show("keeper", "NFileDescriptorStore") == "0")
    host.run("systemctl", "stop", "keeper")


def status(host: Host) -> str:
    return host.machine.show("keeper", "StatusText")


def kernel() -> tuple[int, ...]:
    """From 6.15 on it tells the exit of processes that are not one's own."""
    return tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
