"""Engines in containers: how late their deaths and their readiness are known.

On a Docker Engine of the bench's own, with an image that holds the bench's engine and nothing else.
A death is the engine's own process's, seen through its pidfd by the watcher; the container's init,
its shim and the engine API have all of their work still before them. Readiness is what a poller is
told that asks the published port every two milliseconds; the same poller runs beside processes.
"""

import http.client
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
from msgspec.structs import replace

from bench.figure import Bound, Figure, Row, Skip, row
from bench.parts.daemon import Daemon, daemon, launch_params
from bench.parts.helpers import Observer, observer
from bench.parts.subscriber import Subscriber, subscriber
from bench.stage import Stage
from supervisor.client import Client
from supervisor.contracts.instance import DockerHandle, InstanceView, LaunchParams
from supervisor.contracts.rpc import StopParams
from tests.parts.dockerd import Dockerd, lacking, root_of, started

IMAGE = "bench/engine:1"
LOAD_S = 2.0
POLL_S = 0.002
PROCESS = "processes"


class Poller(threading.Thread):
    """Notes when one engine was first seen to answer 200."""

    def __init__(self, port: int) -> None:
        super().__init__(name=f"poll-{port}", daemon=True)
        self._port = port
        self.at_ns = 0

    def run(self) -> None:
        ends = time.monotonic() + 10 * LOAD_S
        while not self.at_ns and time.monotonic() < ends:
            link = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1)
            try:
                link.request("GET", "/health")
                if link.getresponse().status == 200:
                    self.at_ns = time.monotonic_ns()
            except (OSError, http.client.HTTPException):
                time.sleep(POLL_S)
            finally:
                link.close()


def engine_pid(dockerd: Dockerd, view: InstanceView) -> int:
    """Of the engine itself, which is the only child of the container's init."""
    assert isinstance(view.record.ref, DockerHandle)
    found = dockerd.inspect(view.record.ref.container)
    assert found is not None, "it is ready"
    [child] = psutil.Process(found["State"]["Pid"]).children()
    return child.pid


def contained(params: LaunchParams) -> LaunchParams:
    return replace(params, runtime="docker", docker_image=IMAGE)


def ready_lag(own: Daemon, client: Client, events: Subscriber, name: str, *, docker: bool) -> float:
    """Milliseconds from the poller's news to ours; the engine runs on."""
    params = launch_params(own.engine, name, own.engine.flags(None, LOAD_S), wait=False)
    view = client.launch(contained(params) if docker else params)
    poller = Poller(view.record.port)
    poller.start()
    heard = events.arrival("ready", name)
    poller.join()
    return (heard - poller.at_ns) / 1e6


def exit_lag(client: Client, watcher: Observer, events: Subscriber, name: str, pid: int) -> float:
    death = watcher.kill(pid)
    lag = (events.arrival("exited", name) - death.seen_ns) / 1e6
    client.wait(name, "exited", timeout_ms=30_000)
    return lag


def measure(stage: Stage) -> Iterable[Row]:
    if reason := lacking():
        raise Skip(reason)
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        raise Skip("containers do not run at the bench's priority; measure them without --realtime")
    if not stage.engine.compiled:
        raise Skip("no C compiler: an engine that needs an interpreter does not fit the image")
    rounds = stage.pick(tiny=1, quick=5, default=20, full=40)
    dockerd = stage.closing.enter_context(started())
    program = root_of({"/engine": Path(stage.engine.path)})
    dockerd.import_image(IMAGE, program, 'ENTRYPOINT ["/engine"]')
    docker = f'[docker]\nsocket = "{dockerd.socket}"\npull = "never"\n'
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine, more=docker))
    client = stage.closing.enter_context(own.client())
    events = stage.closing.enter_context(subscriber(own.socket, "ready", "exited"))
    watcher = stage.closing.enter_context(observer())
    exits: list[float] = []
    readies: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(rounds):
        for docker_too in (True, False):
            name = f"e{turn}-{'docker' if docker_too else 'process'}"
            readies[docker_too].append(ready_lag(own, client, events, name, docker=docker_too))
            if docker_too:
                pid = engine_pid(dockerd, client.get(name))
                exits.append(exit_lag(client, watcher, events, name, pid))
            else:
                client.stop(StopParams(name=name, grace_ms=1_000))
    yield row(
        "engine in a container dies, until `exited` at a socket",
        "ms",
        exits,
        Bound(stat="p95", limit=100),
    )
    yield row(
        "engine in a container answers 200, until `ready` at a subscriber",
        "ms",
        readies[True],
        Bound(stat="p50", limit=10),
        Bound(stat="p95", limit=30),
        beside={PROCESS: readies[False]},
    )


FIGURE = Figure(name="docker", title="Containers", measure=measure)
