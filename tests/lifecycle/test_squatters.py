"""HLT-6: somebody else answers on the engine's port, and is never taken for the engine.

The squatter comes at the ``launching`` event, which is after the preflight found the port free and
before anything of the engine runs. Beside each squatted launch goes a control that becomes ready.
"""

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.contracts.config import Config, PortsConfig
from supervisor.contracts.event import (
    Event,
    LaunchFailed,
    Launching,
    PortChanged,
    Ready,
    Reserved,
    Warning_,
)
from supervisor.contracts.failure import ExitedEarly, LaunchFailure, UnhealthyTimeout
from supervisor.contracts.instance import InstanceView
from supervisor.engines.signatures import DOOM
from supervisor.lifecycle.errors import LaunchRefused
from tests.lifecycle.house import POOL, A, Home, free_port, opened
from tests.lifecycle.squatter import squatting
from tests.parts.stub import interpreter

pytestmark = pytest.mark.anyio

ROUNDS, AT_ONCE = 50, 10


@dataclass
class Engine:
    """What is launched onto the squatted port, and how that must end."""

    reuse_port: bool
    knobs: dict[str, Any]
    failure: type[LaunchFailure]
    deadline_ms: int


ENGINES = {
    "cannot-bind": Engine(False, {}, ExitedEarly, 60_000),
    "does-not-bind": Engine(False, {"loading": "refuse", "load": 60}, UnhealthyTimeout, 300),
    "shares": Engine(True, {"reuse_port": 1, "health": "503"}, UnhealthyTimeout, 300),
    "shares-later": Engine(
        True, {"reuse_port": 1, "loading": "refuse", "load": 60}, UnhealthyTimeout, 300
    ),
}


@pytest.mark.parametrize("reuse_port", [False, True], ids=["plain", "reuse-port"])
async def test_a_squatter_never_makes_an_instance_ready(home: Home, reuse_port: bool) -> None:
    engines = [it for it in ENGINES.values() if it.reuse_port == reuse_port]
    binaries = [home.stub(**engine.knobs) for engine in engines]
    control = home.stub()

    async def squatted(number: int) -> None:
        engine = engines[number % len(engines)]
        name = f"squatted-{number}"
        with pytest.raises(LaunchRefused) as caught:
            await home.launch(
                name,
                binary=binaries[number % len(engines)],
                port=free_port(),
                ready_deadline_ms=engine.deadline_ms,
            )
        failure = caught.value.failure
        assert isinstance(failure, engine.failure)
        if isinstance(failure, ExitedEarly):
            assert failure.exit_code == 1
            assert "cannot bind" in failure.log_tail
        assert home.story(name)[:2] == ["reserved", "launching"]
        assert home.story(name)[-1] == "launch-failed"

    async def controlled(number: int) -> None:
        name = f"control-{number}"
        assert (await home.launch(name, binary=control)).state == "ready"
        await home.stop(name)

    for first in range(0, ROUNDS, AT_ONCE):
        with squatting(home, Launching, lambda it: it[0] == "s", reuse_port=reuse_port) as found:
            async with anyio.create_task_group() as tasks:
                for number in range(first, first + AT_ONCE):
                    tasks.start_soon(squatted, number)
                    tasks.start_soon(controlled, number)
            assert len(found) == AT_ONCE
    assert len(home.of(Ready)) == ROUNDS
    assert {it.instance for it in home.of(Ready)} == {f"control-{n}" for n in range(ROUNDS)}
    assert len(home.of(LaunchFailed)) == ROUNDS


async def test_a_stranger_on_the_port_is_news_at_once_and_once(home: Home) -> None:
    binary = home.stub(loading="refuse", load=60)
    with squatting(home, Launching, lambda it: it == "x") as squatters:
        failure = await home.refused(binary=binary, port=free_port(), ready_deadline_ms=400)
    [[(_, squatter)]] = squatters.values()
    assert isinstance(failure, UnhealthyTimeout)
    assert failure.last_probe
    warnings = [it for it in home.of(Warning_) if it.code == "port-foreign"]
    assert len(warnings) == 1
    assert squatter.hits > 1
    await home.nothing_left()


@pytest.mark.parametrize("kind", [Launching, Reserved], ids=["after-preflight", "before-preflight"])
async def test_a_stolen_pool_port_is_changed_for_another(home: Home, kind: type[Event]) -> None:
    """PRT-1: one that a stranger stole before the engine bound is retried on another."""
    squatted: list[str] = []

    def first_time(name: str) -> bool:
        squatted.append(name)
        return len(squatted) == 1

    with squatting(home, kind, first_time) as squatters:
        view = await home.launch(devices=(A,))
        assert view.state == "ready"
        [[(stolen, _)]] = squatters.values()
        [changed] = home.of(PortChanged)
        assert (changed.from_, changed.to) == (stolen, view.record.port)
        assert stolen != view.record.port
        assert home.record_on_disk().port == home.of(Ready)[0].port == view.record.port
        assert POOL.first <= view.record.port <= POOL.last
        assert home.of(LaunchFailed) == []
        await home.stop()


async def test_an_engine_that_stays_up_without_its_port_gets_another(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mlx_lm.server does, which never ends by itself. Here it says so on any port."""
    line = "couldn't bind HTTP server socket"
    monkeypatch.setitem(DOOM, "llamacpp", re.compile(line))
    binary = home.stub(say=line, loading="refuse", load=600)
    squatted: list[str] = []

    def first_time(name: str) -> bool:
        squatted.append(name)
        return len(squatted) == 1

    with squatting(home, Launching, first_time) as squatters:
        failure = await home.refused(binary=binary, ready_deadline_ms=600_000)
        [[(stolen, _)]] = squatters.values()
    assert isinstance(failure, UnhealthyTimeout)
    [changed] = home.of(PortChanged)
    assert changed.from_ == stolen
    await home.nothing_left()


async def test_a_port_that_is_stolen_time_and_again_ends_the_launch(home: Home) -> None:
    with squatting(home, Launching, lambda it: True) as squatters:
        failure = await home.refused(devices=(A,))
        assert isinstance(failure, ExitedEarly)
        assert "cannot bind" in failure.log_tail
        assert len(squatters["x"]) == len(home.of(PortChanged)) + 1 == 3
    await home.again(devices=(A,))


async def test_an_explicit_port_is_never_changed(home: Home) -> None:
    port = free_port()
    with squatting(home, Launching, lambda it: True):
        failure = await home.refused(port=port)
    assert isinstance(failure, ExitedEarly)
    assert home.of(PortChanged) == []
    await home.again(port=port)


async def test_between_two_ports_the_record_is_a_reservation(home: Home) -> None:
    """What a restart goes by: no handle, so the intent is to launch."""
    seen = []

    def look(event: Event) -> None:
        if isinstance(event, Launching):
            record = home.record_on_disk()
            assert record.supervision
            seen.append((record.port, record.ref, record.supervision.intent))

    home.listeners.append(look)
    stolen: list[str] = []

    def first_time(name: str) -> bool:
        stolen.append(name)
        return len(stolen) == 1

    with squatting(home, Launching, first_time):
        view = await home.launch()
    assert len(seen) == 2
    assert [it[1:] for it in seen] == [(None, "launching")] * 2
    assert seen[1][0] == view.record.port
    await home.stop()


SPAWNS_A_HOLDER = """
import os, signal, socket, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
held = socket.create_server(("127.0.0.1", port))
if not os.fork():
    signal.alarm(60)
    signal.pause()
sys.exit(9)
"""


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_port_that_its_own_child_holds_is_not_stolen(home: Home, deaf: bool) -> None:
    """An engine that dies and leaves a worker with the listener met no stranger, and its exit is
    told soon although the worker does not listen.
    """
    program = SPAWNS_A_HOLDER
    if deaf:
        ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        program = program.replace(
            "    signal.pause()", f"    {ignore}\n    while True: signal.pause()"
        )
        assert ignore in program
    engine = home.folder / "engine"
    engine.write_text(f"#!{interpreter()} -SI\n{program}")
    engine.chmod(0o755)
    began = time.monotonic()
    failure = await home.refused(binary=str(engine), devices=(A,))
    assert time.monotonic() - began < 4
    assert isinstance(failure, ExitedEarly)
    assert failure.exit_code == 9
    assert home.of(PortChanged) == []
    await home.again(devices=(A,))


async def test_two_that_move_at_once_never_meet_on_one_port(tmp_path: Path) -> None:
    """Of a pool of three two ports are stolen: the third is for one of the two instances."""
    pool = PortsConfig(first=POOL.first + 40, last=POOL.first + 42)
    slow_disk = {"rename": 0.03}
    config = Config(ports=pool)
    async with opened(
        tmp_path, config=config, store_step=lambda step: time.sleep(slow_disk.get(step, 0))
    ) as home:
        binary = home.stub()
        views: list[InstanceView] = []
        failures: list[LaunchFailure] = []

        async def one(name: str) -> None:
            try:
                views.append(await home.launch(name, binary=binary))
            except LaunchRefused as refused:
                failures.append(refused.failure)

        stolen: list[str] = []

        def first_time(name: str) -> bool:
            stolen.append(name)
            return stolen.count(name) == 1

        with squatting(home, Launching, first_time):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, "x")
                tasks.start_soon(one, "y")
        assert [it.state for it in views] == ["ready"], failures
        assert len(failures) == 1
        assert len(home.of(PortChanged)) == 1
        await home.stop(views[0].record.name)
