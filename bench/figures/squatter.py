"""How often an engine counts as ready because somebody else answers on its port.

Two ways: an engine that loads for ever shares its port with a squatter (``SO_REUSEPORT``, so that
the kernel deals connections to both), and one that does not listen yet lost its port to a plain
squatter. Both squatters answer 200 to everybody. The control believes whom it reaches, as peers
do: it shows that a squatter was truly met each time.
"""

import http.client
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import daemon, launch_params
from bench.parts.engine import announcements
from bench.parts.subscriber import Subscriber, subscriber
from bench.stage import Stage
from supervisor.client import Client
from supervisor.contracts.rpc import StopParams

CONTROL = "believes any 200"
SQUAT_S = 0.8
BATCH = 10
REPLY = b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"status": "ok"}'
SHARED = ("--stub-load", "600", "--stub-reuse-port", "1")
STOLEN = ("--stub-load", "600", "--stub-loading", "refuse")


@contextmanager
def squatter(port: int, *, shared: bool) -> Iterator[None]:
    """Answers 200 on a port that is not its own."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, suppress(OSError):
                client.settimeout(1)
                if client.recv(4096):
                    client.sendall(REPLY)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def fooled(port: int, until: float) -> bool:
    """Whether a poller that believes any 200 is told one in time."""
    while time.monotonic() < until:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        with suppress(OSError, http.client.HTTPException):
            link.request("GET", "/health")
            if link.getresponse().status == 200:
                return True
        link.close()
        time.sleep(0.02)
    return False


class Trial:
    """Launches engines that never get ready, and puts squatters on their ports."""

    def __init__(self, stage: Stage, client: Client, events: Subscriber) -> None:
        self._stage, self._client, self._events = stage, client, events
        self._told = stage.closing.enter_context(announcements(stage.folder / "told"))
        self._count = 0
        self.ours: list[float] = []
        self.control: list[float] = []
        self.told = 0

    def run(self, size: int, *, shared: bool) -> None:
        names, ports = [], []
        flags = (SHARED if shared else STOLEN) + self._stage.engine.flags(self._told)
        for _ in range(size):
            self._count += 1
            params = launch_params(self._stage.engine, f"e{self._count}", flags, wait=False)
            ports.append(self._client.launch(params).record.port)
            names.append(params.name)
            self._told.next()
        time.sleep(0.1)
        with _squatters(ports, shared=shared):
            until = time.monotonic() + SQUAT_S
            self.control += [fooled(port, until) for port in ports]
            time.sleep(max(0, until - time.monotonic()))
            states = {view.record.name: view.state for view in self._client.list().instances}
        self.ours += [states.get(name) == "ready" for name in names]
        self.told += sum(self._warned(name) for name in names)
        for name in names:
            self._client.cancel(StopParams(name=name, grace_ms=500))

    def _warned(self, name: str) -> bool:
        """Whether the daemon said that it met a stranger: else its silence would prove nothing."""
        try:
            return self._events.arrival("warning", name, 0.1) > 0
        except TimeoutError:
            return False


@contextmanager
def _squatters(ports: list[int], *, shared: bool) -> Iterator[None]:
    with ExitStack() as stack:
        for port in ports:
            stack.enter_context(squatter(port, shared=shared))
        yield


def measure(stage: Stage) -> Iterable[Row]:
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine))
    events = stage.closing.enter_context(subscriber(own.socket, "warning"))
    trial = Trial(stage, stage.closing.enter_context(own.client()), events)
    count = stage.pick(tiny=2, quick=10, default=20, full=100)
    for begun in range(0, count, BATCH):
        size = min(BATCH, count - begun)
        trial.run(size - size // 2, shared=True)
        trial.run(size // 2, shared=False)
    met = sum(trial.control)
    yield row(
        f"engines of {count} taken for ready because of a squatter",
        "",
        [sum(trial.ours)],
        Bound(stat="most", limit=0),
        beside={CONTROL: [met], "reported as foreign": [trial.told]},
    )


FIGURE = Figure(name="squatter", title="False ready", measure=measure)
