"""How long after its deadline an engine whose /health hangs is called failed.

The daemon promises the deadline and one probe's timeout (5 s): who was starved past the deadline is
asked once more. The moment of the deadline is read from the record. Engines hang in three ways: one
takes the request and is silent, one listens and never accepts, one was stopped by a signal. The
control asks the same engines as a client with that timeout does, from the same moment on.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterable

import msgspec

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import Daemon, daemon, launch_params
from bench.parts.engine import Announcements, announcements
from bench.parts.subscriber import subscriber
from bench.stage import Stage
from supervisor.client import Client
from supervisor.contracts.rpc import StopParams
from supervisor.health.probe import DEFAULT_TIMEOUT_MS

CONTROL = "client with the same timeout"
DEADLINE_MS = 1_000
WAYS = {
    "silent": ("--stub-health", "silent"),
    "never accepts": ("--stub-defer-accept", "1"),
    "stopped": ("--stub-health", "silent"),
}
SLACK_MS = 50
PATIENCE_S = 30.0


class Asker(threading.Thread):
    """Asks once, from the deadline on, and notes when it gave up."""

    def __init__(self, port: int, deadline_ns: int) -> None:
        super().__init__(name=f"ask-{port}", daemon=True)
        self._port, self._deadline_ns = port, deadline_ns
        self.lag_ms: float | None = None

    def run(self) -> None:
        time.sleep(max(0, self._deadline_ns - time.monotonic_ns()) / 1e9)
        with socket.socket() as link:
            link.settimeout(DEFAULT_TIMEOUT_MS / 1_000)
            try:
                link.connect(("127.0.0.1", self._port))
                link.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                link.recv(4096)
            except TimeoutError:
                self.lag_ms = (time.monotonic_ns() - self._deadline_ns) / 1e6
            except OSError:
                return  # the daemon was faster: the engine is dead


def deadline_of(own: Daemon, name: str) -> int:
    """From the record, which has it as soon as the engine runs."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        for path in own.folder.glob(f"state/**/{name}.json"):
            supervision = msgspec.json.decode(path.read_bytes())["supervision"]
            if (deadline := supervision.get("deadlineMonotonicNs")) is not None:
                return int(deadline)
        time.sleep(0.01)
    raise RuntimeError(f"the record of {name} has no deadline")


def measure(stage: Stage) -> Iterable[Row]:
    each = stage.pick(tiny=1, quick=1, default=4, full=10)
    told = stage.closing.enter_context(announcements(stage.folder / "told"))
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine))
    client = stage.closing.enter_context(own.client())
    events = stage.closing.enter_context(subscriber(own.socket, "launch-failed", "ready"))
    begun: dict[str, list[tuple[str, int, Asker]]] = {way: [] for way in WAYS}
    for number in range(each):
        for way, flags in WAYS.items():
            begun[way].append(_begin(own, client, f"{way.split()[0]}{number}", way, flags, told))
    for way, engines in begun.items():
        lags = [
            (events.arrival("launch-failed", name, PATIENCE_S) - deadline) / 1e6
            for name, deadline, _ in engines
        ]
        theirs = []
        for name, _, asker in engines:
            asker.join()
            if asker.lag_ms is not None:
                theirs.append(asker.lag_ms)
            client.cancel(StopParams(name=name, grace_ms=0))
        yield row(
            f"/health hangs ({way}): deadline, until `launch-failed`",
            "ms",
            lags,
            Bound(stat="most", limit=SLACK_MS, beyond=CONTROL),
            beside={CONTROL: theirs},
        )


def _begin(
    own: Daemon, client: Client, name: str, way: str, flags: tuple[str, ...], told: Announcements
) -> tuple[str, int, Asker]:
    every = (*own.engine.flags(told), *flags)
    params = launch_params(own.engine, name, every, wait=False, deadline_ms=DEADLINE_MS)
    port = client.launch(params).record.port
    pid = told.next().pid
    deadline = deadline_of(own, name)
    if way == "stopped":
        time.sleep(0.1)  # so that it listens
        os.kill(pid, signal.SIGSTOP)
    asker = Asker(port, deadline)
    asker.start()
    return name, deadline, asker


FIGURE = Figure(name="hung", title="Verdict on a hung engine", measure=measure)
