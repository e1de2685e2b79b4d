"""What the engines do before they are ready, and what is made of it, and when."""

import json
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from supervisor.contracts.event import Ready, Recovered, Spawned, Unhealthy
from supervisor.contracts.failure import ExitedEarly, LaunchFailure, UnhealthyTimeout
from supervisor.contracts.instance import InstanceView
from supervisor.health import probe
from supervisor.instances.files import RecordFiles
from supervisor.lifecycle.errors import InvalidLaunch, LaunchRefused
from tests.lifecycle.house import A, BentClock, Home, free_port, opened, pid_of, tune

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("knobs", "seen"),
    [
        ({"health": "never"}, "refused"),
        ({"health": "503"}, "503"),
        ({"health": "loading"}, "loading"),
        ({"health": "redirect"}, "302"),
        ({"loading": "refuse", "load": 60}, "refused"),
    ],
    ids=["never-listens", "503", "says-loading", "redirects", "listens-too-late"],
)
async def test_what_is_not_ready_by_the_deadline_is_a_timeout(
    home: Home, knobs: dict[str, Any], seen: str
) -> None:
    binary = home.stub(**knobs)
    began = time.monotonic()
    failure = await home.refused(binary=binary, devices=(A,), ready_deadline_ms=400)
    assert time.monotonic() - began < 3
    assert isinstance(failure, UnhealthyTimeout)
    assert 400 <= failure.waited_ms < 1_500
    assert seen in (failure.last_probe or "")
    await home.again(devices=(A,))


@pytest.mark.parametrize("loading", ["503", "200", "refuse"])
async def test_a_loading_engine_is_starting_and_then_ready(home: Home, loading: str) -> None:
    """HLT-2: whatever it says meanwhile, ready is said after the load and not before."""
    await home.launch(binary=home.stub(load=0.8, loading=loading), wait=False)
    await home.seen(Spawned)
    began = time.monotonic()
    while not home.of(Ready):
        assert home.supervisor.get("x").state == "starting"
        await anyio.sleep(0.02)
        assert time.monotonic() - began < 5
    assert home.of(Ready)[0].waited_ms >= 800
    assert home.supervisor.get("x").state == "ready"
    log = read(home.supervisor.log_path("x"))
    asked = {line.split()[2] for line in log.splitlines() if " GET " in line}
    assert asked <= {"/health"}
    await home.stop()


@pytest.mark.parametrize("knobs", [{"http10": 1}, {"reuse_port": 1}, {"body": ""}])
async def test_other_ways_of_being_ready(home: Home, knobs: dict[str, Any]) -> None:
    assert (await home.launch(binary=home.stub(**knobs))).state == "ready"
    await home.stop()


async def test_five_bad_engines_cost_a_good_one_nothing(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HLT-8: each bad one ends within its deadline and one probe's timeout."""
    timeout_ms, deadline_ms = 700, 500
    monkeypatch.setattr(probe, "DEFAULT_TIMEOUT_MS", timeout_ms)
    results: dict[str, LaunchFailure | InstanceView] = {}
    took: dict[str, float] = {}
    lags: list[float] = []

    async def one(name: str) -> None:
        began = time.monotonic()
        try:
            results[name] = await home.launch(
                name, binary=home.stub(health=name), ready_deadline_ms=deadline_ms
            )
        except LaunchRefused as refused:
            results[name] = refused.failure
        took[name] = time.monotonic() - began

    async def watch_the_loop() -> None:
        while True:
            began = time.monotonic()
            await anyio.sleep(0.01)
            lags.append(time.monotonic() - began - 0.01)

    memory = psutil.Process().memory_info().rss
    async with anyio.create_task_group() as watch:
        watch.start_soon(watch_the_loop)
        async with anyio.create_task_group() as tasks:
            for health in ("silent", "slow", "endless", "hostile", "redirect"):
                tasks.start_soon(one, health)
            tasks.start_soon(one, "ok")
        watch.cancel_scope.cancel()
    assert psutil.Process().memory_info().rss - memory < 20 << 20
    assert sorted(lags)[len(lags) * 9 // 10] < 0.1
    assert isinstance(results["ok"], InstanceView)
    assert took["ok"] < 3
    for name in ("silent", "slow", "hostile", "redirect"):
        failure = results[name]
        assert isinstance(failure, UnhealthyTimeout), name
        assert deadline_ms <= failure.waited_ms < deadline_ms + timeout_ms + 500, name
    for published in home.events:
        decoded = msgspec.json.decode(published.encoded)
        said = json.dumps({k: v for k, v in decoded.items() if k != "log_tail"})
        assert "\\u001b" not in said.replace("\\\\", "")
    for view in home.supervisor.list():
        await home.stop(view.record.name)


@pytest.mark.parametrize(
    ("after", "knobs", "code", "signal"),
    [
        (0.3, {"exit_code": 3}, 3, None),
        (1.5, {"exit_code": 3}, 3, None),
        (0.3, {"exit_code": 0}, 0, None),
        (0.3, {"exit_by": "SIGKILL"}, None, "SIGKILL"),
    ],
    ids=["3", "3-later", "0", "SIGKILL"],
)
async def test_an_early_exit_is_seen_at_once(
    home: Home, after: float, knobs: dict[str, Any], code: int | None, signal: str | None
) -> None:
    """STR-2: ten minutes of deadline, and the failure within a second of the exit."""
    say = "first line\\nsecond line\\nthe cause"
    binary = home.stub(load=120, say=say, exit_after=after, **knobs)
    began = time.monotonic()
    failure = await home.refused(binary=binary, devices=(A,), ready_deadline_ms=600_000)
    assert after < time.monotonic() - began < after + 1
    assert isinstance(failure, ExitedEarly)
    assert (failure.exit_code, failure.signal) == (code, signal)
    assert "ready" not in home.story()
    assert "first line\nsecond line\nthe cause\n" in failure.log_tail
    view = home.supervisor.get("x")
    assert view.exit
    assert (view.exit.exit_code, view.exit.signal) == (code, signal)
    await home.again(devices=(A,))


async def test_a_flood_is_bounded_in_the_failure_and_whole_in_the_log(home: Home) -> None:
    """STR-3: the tail has the end, the file has the first line."""
    flood = 4 << 20
    binary = home.stub(say="the cause of it all", flood=flood, load=120, exit_after=0.01)
    failure = await home.refused(binary=binary, devices=(A,))
    assert isinstance(failure, ExitedEarly)
    assert failure.exit_code == 0
    assert len(msgspec.json.encode(failure.log_tail)) <= 8 << 10
    assert len(failure.log_tail) > 4 << 10
    assert "the cause" not in failure.log_tail
    view = home.supervisor.get("x")
    assert view.log_path == home.supervisor.log_path("x")
    log = read(view.log_path)
    assert len(log) > flood
    assert log.startswith("the cause of it all\n")


async def test_an_engine_that_floods_its_log_is_ready_all_the_same(home: Home) -> None:
    view = await home.launch(binary=home.stub(flood=8 << 20, output="long-line,invalid-utf8"))
    assert view.state == "ready"
    await home.stop()


async def test_a_tail_of_anything_fits_and_decodes(home: Home) -> None:
    output = "invalid-utf8,cr-only,long-line,invalid-utf8"
    failure = await home.refused(binary=home.stub(output=output, load=60, exit_after=0.05))
    assert isinstance(failure, ExitedEarly)
    assert len(msgspec.json.encode(failure.log_tail)) <= 8 << 10
    assert failure.log_tail


HOSTS = ("127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]", "0.0.0.0", "::")


@pytest.mark.parametrize("host", HOSTS)
async def test_the_probe_asks_where_the_engine_listens(home: Home, host: str) -> None:
    """HLT-4: an engine that is bound to one address hears nothing that is sent to another."""
    view = await home.launch(extra_args=("--host", host))
    assert view.state == "ready"
    log = read(view.log_path)
    assert f"listening on {host.strip('[]')}:{view.record.port}" in log
    assert "GET /health" in log
    await home.stop()


async def test_a_port_among_the_extra_arguments_is_the_port(home: Home) -> None:
    """HLT-5: record, listener and probe agree."""
    port = free_port()
    for extra_args in (("--port", str(port)), (f"--port={port}",)):
        view = await home.launch(extra_args=extra_args)
        assert (view.state, view.record.port) == ("ready", port)
        assert f":{port}" in read(view.log_path)
        await home.stop()
    view = await home.launch(env={"LLAMA_ARG_PORT": str(port)}, port=port)
    assert (view.state, view.record.port) == ("ready", port)
    await home.stop()
    with pytest.raises(InvalidLaunch, match=str(port)):
        await home.launch(extra_args=("--port", str(port)), port=free_port())


async def test_misses_after_ready_make_it_unhealthy_and_nothing_more(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SIGSTOP variant of HLT-8: told once each way, the engine left alone."""
    tune(monkeypatch, RELAXED_S=0.05)
    monkeypatch.setattr(probe, "DEFAULT_TIMEOUT_MS", 200)
    view = await home.launch(devices=(A,))
    process = psutil.Process(pid_of(view))
    process.suspend()
    unhealthy = await home.seen(Unhealthy)
    assert unhealthy.misses == 3
    assert home.supervisor.get("x").state == "unhealthy"
    await anyio.sleep(0.5)
    assert home.supervisor.get("x").health.misses > 3
    assert home.supervisor.get("x").health.last
    assert await home.holders() == {A: ["x"]}
    process.resume()
    assert (await home.seen(Recovered)).unhealthy_ms >= 0
    assert home.supervisor.get("x").state == "ready"
    assert home.story() == ["reserved", "launching", "spawned", "ready", "unhealthy", "recovered"]
    await home.stop()


@pytest.mark.parametrize("hours", [-1, 1, 24])
async def test_steps_of_the_wall_clock_change_nothing(tmp_path: Path, hours: int) -> None:
    """CLK-1: neither is the deadline met early, nor is it never met."""
    clock = BentClock()
    async with opened(tmp_path, clock=clock) as home:
        await home.launch(binary=home.stub(load=0.6), wait=False, ready_deadline_ms=30_000)
        await home.seen(Spawned)
        clock.bend(hours)
        assert home.supervisor.get("x").state == "starting"
        ready = await home.seen(Ready)
        assert 600 <= ready.waited_ms < 5_000
        assert home.supervisor.get("x").state == "ready"
        await home.stop()
        await home.launch(
            binary=home.stub(health="503"), wait=False, ready_deadline_ms=600, devices=(A,)
        )
        await home.seen(Spawned, times=2)
        clock.bend(-hours)
        with pytest.raises(LaunchRefused) as caught:
            await home.supervisor.wait("x", nonce=None, until="ready", timeout_ms=10_000)
        failure = caught.value.failure
        assert isinstance(failure, UnhealthyTimeout)
        assert 600 <= failure.waited_ms < 5_000


async def test_records_are_0600_and_a_view_shows_no_supervision(home: Home) -> None:
    view = await home.launch()
    path = RecordFiles(home.state_dir).record_path("x")
    assert path.stat().st_mode & 0o777 == 0o600
    assert home.record_on_disk().supervision
    assert not view.record.supervision
    await home.stop()


def read(path: str | None) -> str:
    return Path(path or "").read_text()


async def test_an_engine_that_speaks_tls_is_asked_in_tls(home: Home) -> None:
    """And stays ready afterwards; ``instance.metrics`` reaches it as well."""
    pems = Path(__file__).parents[1] / "parts" / "tls"
    flags = ("--ssl-key-file", str(pems / "key.pem"), "--ssl-cert-file", str(pems / "cert.pem"))
    page = "llamacpp:requests_processing 2\n"
    view = await home.launch(binary=home.stub(tls=str(pems), metrics=page), extra_args=flags)
    assert view.state == "ready"
    assert (await home.supervisor.metrics("x")).metrics.requests_running == 2.0
    await home.stop()


async def test_an_engine_that_thinks_before_it_answers(home: Home, tmp_path: Path) -> None:
    """SGLang's health path generates a token: longer than the usual limit of one probe."""
    model = tmp_path / "m"
    model.mkdir()
    (model / "config.json").write_text("{}")
    think = probe.DEFAULT_TIMEOUT_MS / 1000 + 0.5
    thinker = home.stub("sglang", think=think)
    view = await home.launch(
        engine="sglang", binary=thinker, model_path=str(model), devices=(A,), wait=False
    )
    await home.seen(Ready)
    assert home.of(Ready)[0].waited_ms > probe.DEFAULT_TIMEOUT_MS
    assert view.record.engine == "sglang"
    await home.stop()
