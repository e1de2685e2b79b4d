"""supervisord as a peer: its daemon with ``n`` programs, its XML-RPC, and an event listener."""

import http.client
import socket
import subprocess
import time
import xmlrpc.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.parts.engine import EngineProgram
from bench.parts.news import News
from bench.parts.peers import Peers, end, environment

LISTENER = Path(__file__).with_name("supervisord_listener.py")
START_S = 20.0
STOPPED, RUNNING = 0, 20
"""Its own numbers."""


class Supervisord:
    """Its programs are called ``p0``, ``p1``, and so on."""

    def __init__(self, config: Path, path: str, pid: int, count: int, news: News) -> None:
        self.pid = pid
        self.config = str(config)
        self.news = news
        self._transport = _Transport(path)
        server: Any = xmlrpc.client.ServerProxy("http://localhost", transport=self._transport)
        self.calls = server.supervisor
        self._count = count

    def pids(self) -> dict[str, int]:
        """Of all programs, once all of them run."""
        found = self._once(RUNNING)
        return {one["name"]: one["pid"] for one in found}

    def known(self) -> None:
        """Return once it knows all of its programs, none of which runs."""
        self._once(STOPPED)

    def start_all(self) -> None:
        """Returns before they run."""
        self.calls.startAllProcesses(False)

    def _once(self, state: int) -> list[Any]:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                found = [one for one in self.calls.getAllProcessInfo() if one["group"][0] == "p"]
                if len(found) == self._count and all(one["state"] == state for one in found):
                    return found
            except (OSError, http.client.HTTPException, xmlrpc.client.Error):
                self._transport.close()
            time.sleep(0.05)
        raise RuntimeError("supervisord did not start its programs")

    def timed(self, name: str) -> float:
        """Milliseconds of one status call on the kept connection."""
        began = time.perf_counter_ns()
        self.calls.getProcessInfo(name)
        return (time.perf_counter_ns() - began) / 1e6

    def timed_all(self) -> float:
        began = time.perf_counter_ns()
        self.calls.getAllProcessInfo()
        return (time.perf_counter_ns() - began) / 1e6

    def close(self) -> None:
        self._transport.close()


@contextmanager
def supervisord(
    peers: Peers,
    folder: Path,
    engine: EngineProgram,
    count: int,
    *,
    flags: Callable[[int], tuple[str, ...]] = lambda number: (),
    options: str = "",
    autostart: bool = True,
) -> Iterator[Supervisord | None]:
    """A running one, or ``None`` where it is not installed. ``options`` are lines for each of its
    programs; without ``autostart`` these wait for ``start_all``.
    """
    program, python = peers.bin("supervisord"), peers.bin("python")
    if program is None:
        yield None
        return
    news = News(folder / "news")
    config = folder / "supervisord.conf"
    config.write_text(
        f"[unix_http_server]\nfile={folder}/s\n"
        f"[supervisord]\nnodaemon=true\nminfds=1024\nlogfile={folder}/log\npidfile={folder}/pid\n"
        "[rpcinterface:supervisor]\n"
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        f"[supervisorctl]\nserverurl=unix://{folder}/s\n"
        f"[eventlistener:ev]\ncommand={python} {LISTENER} {news.path}\nevents=PROCESS_STATE\n"
        "buffer_size=1000\n"
        + "".join(
            f"[program:p{number}]\n"
            f"command={engine.path} --stub-life 900 {' '.join(flags(number))}\n"
            f"autostart={str(autostart).lower()}\nautorestart=false\nstartsecs=0\n"
            f"stdout_logfile=NONE\nstderr_logfile=NONE\n{options}"
            for number in range(count)
        )
    )
    process = subprocess.Popen(
        [program, "-n", "-c", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    one = Supervisord(config, f"{folder}/s", process.pid, count, news)
    try:
        if autostart:
            one.pids()
        else:
            one.known()
        yield one
    finally:
        one.close()
        end(process)
        news.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(self._path)


class _Transport(xmlrpc.client.Transport):
    """XML-RPC over the Unix socket, on one kept connection."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._kept: _Connection | None = None

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        self._kept = self._kept or _Connection(self._path)
        return self._kept

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
