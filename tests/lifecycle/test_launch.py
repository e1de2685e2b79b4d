"""The straight way: a launch, what the engine is given, its events, the waiting, its stop."""

import json
import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.contracts.config import Config, DevicesConfig
from supervisor.contracts.event import Launching, Ready, Reserved, Spawned, Stopped
from supervisor.contracts.failure import ExitedEarly
from supervisor.lifecycle.errors import HasEnded, LaunchRefused, NoSuchInstance, WaitTimedOut
from tests.lifecycle.house import CARDS, POOL, A, B, Home, opened

pytestmark = pytest.mark.anyio


async def told_by_itself(home: Home, tmp_path: Path, **members: Any) -> dict[str, Any]:
    """What an engine finds itself with: argv, environment, descriptors and more."""
    path = tmp_path / "facts.json"
    await home.launch(binary=home.stub(dump=str(path)), **members)
    facts: dict[str, Any] = json.loads(read(path))
    await home.stop()
    return facts


async def test_a_launch_and_its_stop(home: Home) -> None:
    view = await home.launch(devices=(A,), served_model_name="org/model:Q4")
    assert (view.state, view.intent, view.attempt, view.failure) == ("ready", "running", 1, None)
    assert view.record.devices == (A,)
    assert view.record.recipe_id == "x"
    assert await home.holders() == {A: ["x"]}
    assert home.supervisor.info().counts == {"ready": 1}
    stopped = await home.stop()
    assert (stopped.state, stopped.failure) == ("exited", None)
    assert stopped.exit
    assert stopped.exit.exit_code == 0
    assert home.story() == ["reserved", "launching", "spawned", "ready", "stopping", "stopped"]
    assert {it.event.nonce for it in home.events if it.event.instance} == {view.record.nonce}
    [reserved], [spawned] = home.of(Reserved), home.of(Spawned)
    assert (reserved.engine, reserved.devices) == ("llamacpp", (A,))
    assert (reserved.port, spawned.ref) == (view.record.port, view.record.ref)
    assert (spawned.log_path, home.of(Ready)[0].port) == (view.log_path, view.record.port)
    assert home.of(Stopped)[0].devices == (A,)


async def test_every_event_comes_after_the_fact_it_tells(home: Home) -> None:
    """A reservation is on disk when it is told, a handle before its engine runs."""
    seen: dict[str, Any] = {}

    def look(event: object) -> None:
        if isinstance(event, Reserved | Spawned | Ready):
            record = home.record_on_disk()
            assert record.supervision
            kind = type(event).__name__
            seen[kind] = record.ref, record.supervision.ready_at is not None

    home.listeners.append(look)
    view = await home.launch()
    ref = view.record.ref
    assert seen == {"Reserved": (None, False), "Spawned": (ref, False), "Ready": (ref, True)}
    await home.stop()


HARD_WORDS = (
    '{"enable_thinking": false}',
    "two  spaces",
    'it\'s "quoted"',
    "$HOME `id` $(id) %s ~ * ? [a] !",
    "back\\slash",
    "new\nline\ttab",
    "ünïcödé 🦙",
    "",
    "-",
    "x" * 5_000,
)


async def test_argv_is_the_plans_byte_for_byte(home: Home, tmp_path: Path) -> None:
    """ARG-3: a list from the request to the exec; no shell ever sees it."""
    model = tmp_path / "a b" / '-$HOME\'s "ünï" %s\n🦙.gguf'
    make_file(model)
    words = [word for it in HARD_WORDS for word in ("--chat-template", it)]
    facts = await told_by_itself(
        home, tmp_path, extra_args=tuple(words), model_path=str(model), served_model_name="a b/c"
    )
    [launching] = home.of(Launching)
    argv = facts["argv"]
    assert argv[1:][-len(words) :] == words
    assert argv[argv.index("-m") + 1 if "-m" in argv else argv.index("--model") + 1] == str(model)
    assert "a b/c" in argv
    assert list(launching.plan.argv[1:3]) == argv[1:3]


async def test_a_command_is_run_verbatim(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    probe = home.stub(dump=str(path))
    port = POOL.first
    command = (probe, "serve", "--port", str(port), "--", "$HOME", "")
    view = await home.launch(command=command, port=port)
    assert view.state == "ready"
    assert json.loads(read(path))["argv"] == list(command)
    await home.stop()


async def test_the_environment_is_a_defined_base_and_the_launchs_own(tmp_path: Path) -> None:
    """ARG-5, SYS-2, GPU-4: nothing that steers us, or that we were told, steers the engine."""
    poison = {
        "PYTHONPATH": "/nowhere",
        "PYTHONHOME": "/nowhere",
        "VIRTUAL_ENV": "/venv",
        "LD_PRELOAD": "/nowhere.so",
        "LD_LIBRARY_PATH": "/nowhere",
        "VLLM_PORT": "tcp://10.0.0.1:80",
        "LLAMA_ARG_PORT": "9999",
        "LLAMA_API_KEY": "x",
        "SGLANG_X": "1",
        "TABBY_X": "1",
        "CUDA_VISIBLE_DEVICES": "4,5",
        "HIP_VISIBLE_DEVICES": "4",
        "NOTIFY_SOCKET": "/run/notify",
        "WATCHDOG_USEC": "1",
        "WATCHDOG_PID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_PID": "1",
        "INVOCATION_ID": "i",
        "JOURNAL_STREAM": "8:1",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HF_TOKEN": "t",
        "ENGINE_SUPERVISOR_SOCKET": "/run/s",
    }
    kept = {"HOME": "/home/somebody", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    inherited = poison | kept | {"PATH": "/venv/bin:/usr/bin:/bin"}
    async with opened(tmp_path, inherited_env=inherited) as home:
        facts = await told_by_itself(
            home,
            tmp_path,
            devices=(B,),
            env={"HTTPS_PROXY": "http://proxy:1", "VLLM_PORT": "1234", "EMPTY": ""},
        )
    env = facts["env"]
    assert {key: env.get(key) for key in kept} == kept
    leaked = {key for key in poison if env.get(key) == poison[key]}
    assert leaked == set()
    assert env["HTTPS_PROXY"] == "http://proxy:1"
    assert env["VLLM_PORT"] == "1234"
    assert env["EMPTY"] == ""
    assert env["PYTHONUNBUFFERED"] == "1"
    assert "/venv/bin" not in env["PATH"].split(":")
    assert env["PATH"].split(":")[0] == str(tmp_path / "bin")
    assert env["CUDA_VISIBLE_DEVICES"] == B
    assert (env["ENGINE_SUPERVISOR_INSTANCE"], env["ENGINE_SUPERVISOR_DEVICES"]) == ("x", B)
    assert {env["ENGINE_SUPERVISOR_NONCE"]} == home.nonces
    assert "/nowhere" not in facts["path"]


async def test_an_engine_has_three_descriptors_and_a_session_of_its_own(
    home: Home, tmp_path: Path
) -> None:
    """PRT-3, and what else a child could inherit from us."""
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        facts = await told_by_itself(home, tmp_path)
    finally:
        os.close(inherited)
    own = {fd: target for fd, target in facts["fds"].items() if "/proc/" not in target}
    log = home.of(Spawned)[0].log_path
    assert own == {"0": "/dev/null", "1": log, "2": log}
    assert facts["sid"] == facts["pgid"] == facts["pid"]


async def test_both_streams_go_to_the_log_in_order_from_the_first_byte(home: Home) -> None:
    binary = home.stub(say="out of order?", flood=1, load=60, exit_after=0.05)
    failure = await home.refused(binary=binary)
    assert isinstance(failure, ExitedEarly)
    log = read(Path(home.supervisor.log_path("x")))
    assert log.startswith("out of order?\nstub: one line of a flood")
    assert failure.log_tail == log


async def test_each_attempt_has_a_log_of_its_own_and_old_ones_go(home: Home) -> None:
    paths = set()
    for _ in range(7):
        view = await home.launch()
        paths.add(view.log_path)
        await home.stop()
    assert len(paths) == 7
    left = [path for path in paths if path and is_there(path)]
    assert len(left) == 5
    assert home.supervisor.get("x").log_path in left


# Waiting


async def test_waiting_for_ready(home: Home) -> None:
    await home.launch(binary=home.stub(load=0.5), wait=False)
    began = time.monotonic()
    with pytest.raises(WaitTimedOut):
        await home.supervisor.wait("x", nonce=None, until="ready", timeout_ms=150)
    assert 0.14 < time.monotonic() - began < 0.45
    view = await home.supervisor.wait("x", nonce=None, until="ready", timeout_ms=5_000)
    assert view.state == "ready"
    assert (await home.supervisor.wait("x", nonce=None, until="ready", timeout_ms=0)) == view
    await home.stop()
    with pytest.raises(HasEnded):
        await home.supervisor.wait("x", nonce=None, until="ready", timeout_ms=0)


async def test_waiting_for_ready_of_what_fails(home: Home) -> None:
    await home.launch(binary=home.stub(load=60, exit_after=0.2, exit_code=4), wait=False)
    for _ in range(2):  # while it lives, and of the tombstone
        with pytest.raises(LaunchRefused) as caught:
            await home.supervisor.wait("x", nonce=None, until="ready", timeout_ms=5_000)
        assert isinstance(caught.value.failure, ExitedEarly)
        assert caught.value.failure.exit_code == 4


async def test_waiting_for_the_end(home: Home) -> None:
    view = await home.launch()
    nonce = view.record.nonce
    with pytest.raises(WaitTimedOut):
        await home.supervisor.wait("x", nonce=nonce, until="exited", timeout_ms=50)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(home.stop)
        ended = await home.supervisor.wait("x", nonce=nonce, until="exited", timeout_ms=5_000)
    assert ended.state == "exited"
    again = await home.supervisor.wait("x", nonce=nonce, until="exited", timeout_ms=0)
    assert again == ended
    await home.launch()
    with pytest.raises(NoSuchInstance):
        await home.supervisor.wait("x", nonce=nonce, until="exited", timeout_ms=0)
    await home.stop()
    with pytest.raises(NoSuchInstance):
        await home.supervisor.wait("nobody", nonce=None, until="exited", timeout_ms=0)


# Devices


async def test_shared_and_exclusive_devices(home: Home) -> None:
    """Any number on the host's own memory; a card is for one, unless all agree to share it."""
    for name in ("a", "b", "c"):
        await home.launch(name)
    for name in ("d", "e"):
        await home.launch(name, devices=(A,), exclusive=False)
    assert await home.holders() == {"cpu:0": ["a", "b", "c"], A: ["d", "e"]}
    await home.refused("f", devices=(A,))
    await home.refused("f", devices=("cpu:0",), exclusive=True)
    for name in ("a", "b", "c", "d", "e"):
        await home.stop(name)


async def test_a_choice_by_count_stays_within_the_hosts_accelerator(home: Home) -> None:
    views = [await home.launch(name, device_count=1) for name in ("a", "b")]
    assert {it.record.devices for it in views} == {(A,), (B,)}
    await home.refused("c", device_count=1)
    for name in ("a", "b"):
        await home.stop(name)


async def test_a_plan_is_what_a_launch_runs_and_has_no_effect(tmp_path: Path) -> None:
    config = Config(ports=POOL, devices=DevicesConfig(static=CARDS[:1]))
    async with opened(tmp_path, config=config) as home:
        params = home.params("x", devices=(A,), port=POOL.first)
        reply = await home.supervisor.plan(params)
        assert reply.refusal is None
        assert home.story() == []
        await home.nothing_left()
        await home.supervisor.launch(params)
        assert home.of(Launching)[0].plan.argv == reply.plan.argv
        assert "x" in ((await home.supervisor.plan(params)).refusal or "")
        await home.stop()


def make_file(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.touch()


def read(path: Path) -> str:
    return path.read_text()


def is_there(path: str) -> bool:
    return os.path.exists(path)
