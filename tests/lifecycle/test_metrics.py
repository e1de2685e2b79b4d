"""``instance.metrics`` on real engines and on what engines must not be able to do to it."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import anyio
import msgspec
import pytest

from supervisor.contracts.event import Stopping, Warning_
from supervisor.health.outcome import Miss
from supervisor.lifecycle import scraping
from supervisor.lifecycle.errors import NoSuchInstance
from supervisor.lifecycle.instance import Instance
from tests.lifecycle.house import Home, pid_of
from tests.parts import real_llama

pytestmark = pytest.mark.anyio

PAGE = "llamacpp:requests_processing 2\nllamacpp:requests_deferred NaN\n"


async def test_a_real_server_tells_its_load(home: Home) -> None:
    server = real_llama.require("genuine-llama-server")
    view = await home.launch(binary=str(server), model_path=str(real_llama.tiny_gguf()))
    await anyio.to_thread.run_sync(_complete, view.record.port)
    reply = await home.supervisor.metrics("x")
    told = reply.metrics
    assert reply.unavailable is msgspec.UNSET
    assert reply.bad_lines == 0
    assert (told.requests_running, told.requests_waiting) == (0.0, 0.0)
    assert told.generation_tokens_total == 8.0
    assert told.prompt_tokens_total is not None
    assert told.prompt_tokens_total > 0
    assert told.kv_cache_utilization is None
    assert reply.unsupported == ("kvCacheUtilization",)
    await home.stop()
    with pytest.raises(NoSuchInstance):
        await home.supervisor.metrics("x")


async def test_a_real_server_behind_a_key_and_a_prefix(home: Home) -> None:
    """Without the key llama-server answers 401 here, and 404 without the prefix (measured)."""
    server = real_llama.require("genuine-llama-server")
    await home.launch(
        binary=str(server),
        model_path=str(real_llama.tiny_gguf()),
        extra_args=("--api-key", "open-sesame", "--api-prefix", "/behind"),
    )
    reply = await home.supervisor.metrics("x")
    assert reply.unavailable is msgspec.UNSET
    assert reply.metrics.requests_running == 0.0
    await home.stop()


@pytest.mark.parametrize("by", ["flag", "variable"])
async def test_a_real_server_with_its_keys_in_a_file(home: Home, tmp_path: Path, by: str) -> None:
    """Health is public, pages and completions are not: without a key all of these would be 401."""
    server = real_llama.require("genuine-llama-server")
    keys = tmp_path / "keys"
    keys.write_text("# ours\n\nopen-sesame-of-a-file\nanother-key-of-a-file\n")
    said = {"flag": {"extra_args": ("--api-key-file", str(keys))}}
    await home.launch(
        binary=str(server),
        model_path=str(real_llama.tiny_gguf()),
        **said.get(by, {"env": {"LLAMA_ARG_API_KEY_FILE": str(keys)}}),
    )
    reply = await home.supervisor.metrics("x")
    assert reply.unavailable is msgspec.UNSET
    assert reply.metrics.requests_running == 0.0
    mask = home.supervisor.redactor("x")
    for key in ("open-sesame-of-a-file", "another-key-of-a-file"):
        assert key not in mask(f"request with {key} refused")
        assert not [it for it in home.events if key in msgspec.json.encode(it.event).decode()]
    await home.stop()


async def test_a_key_file_that_cannot_be_read_is_told(home: Home, tmp_path: Path) -> None:
    """And a fifo hangs nobody: the stub does not read it, and asks for no key."""
    keys = tmp_path / "keys"
    os.mkfifo(keys)
    await home.launch(extra_args=("--api-key-file", str(keys)))
    (told,) = home.of(Warning_)[:1]
    assert told.code == "key-file-unreadable"
    assert "no ordinary file" in told.detail
    await home.stop()


async def test_a_bad_number_is_null_in_strict_json(home: Home) -> None:
    """MET-2."""
    await home.launch(binary=home.stub(metrics=PAGE))
    reply = await home.supervisor.metrics("x")
    assert json.loads(msgspec.json.encode(reply)) == {
        "name": "x",
        "engine": "llamacpp",
        "metrics": {
            "requestsRunning": 2.0,
            "requestsWaiting": None,
            "kvCacheUtilization": None,
            "promptTokensTotal": None,
            "generationTokensTotal": None,
        },
        "unsupported": ["kvCacheUtilization", "promptTokensTotal", "generationTokensTotal"],
        "badLines": 1,
    }
    await home.stop()


async def test_before_it_is_ready_nothing_is_asked(home: Home) -> None:
    await home.launch(binary=home.stub(load=600), wait=False)
    reply = await home.supervisor.metrics("x")
    assert reply.unavailable == "the engine is not ready yet"
    assert reply.unsupported == ()
    await home.stop()


async def test_a_page_of_another_kind_is_none(home: Home) -> None:
    """MET-2."""
    await home.launch(binary=home.stub(metrics="<html><body>\x1b[31mlog in</body></html>"))
    reply = await home.supervisor.metrics("x")
    assert reply.unavailable
    assert "no metrics page came back" in reply.unavailable
    assert "\x1b" not in reply.unavailable
    assert reply.metrics.requests_running is None
    await home.stop()


async def test_an_engine_that_is_being_stopped_is_not_connected_to(home: Home) -> None:
    """Ours close before the signal, so that nobody waits for us."""
    await home.launch(binary=home.stub(metrics=PAGE, term_delay=0.6))
    found = home.supervisor._roster.find("x")
    assert isinstance(found, Instance)
    assert (await found.page("/metrics", limit=10_000, within_s=5)).status == 200
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(home.stop)
        await home.seen(Stopping)
        await anyio.sleep(0.1)
        with pytest.raises(Miss, match="cannot be asked now"):
            await found.page("/metrics", limit=10_000, within_s=5)


async def test_an_endless_page_is_read_up_to_a_bound(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MET-2."""
    monkeypatch.setattr(scraping, "PAGE_BYTES", 10_000)
    filler = 'llamacpp:x{a="b"} 1\n' * 2_000
    await home.launch(binary=home.stub(metrics=PAGE + filler + PAGE))
    reply = await home.supervisor.metrics("x")
    assert reply.metrics.requests_running == 2.0
    await home.stop()


async def test_an_engine_that_hangs_is_waited_for_in_bounded_time(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scraping, "SCRAPE_S", 0.2)
    view = await home.launch(binary=home.stub(metrics=PAGE))
    os.kill(pid_of(view), signal.SIGSTOP)
    try:
        for _ in range(5):  # and never more than one of ours waits in its backlog
            with anyio.fail_after(5):
                reply = await home.supervisor.metrics("x")
            assert reply.unavailable
            assert reply.metrics.requests_running is None
    finally:
        os.kill(pid_of(view), signal.SIGCONT)
    monkeypatch.setattr(scraping, "SCRAPE_S", 10.0)
    assert (await home.supervisor.metrics("x")).metrics.requests_running == 2.0
    await home.stop()


def _complete(port: int) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 8, "ignore_eos": True}).encode()
    headers = {"Content-Type": "application/json"}
    url = f"http://127.0.0.1:{port}/v1/completions"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, body, headers), timeout=60) as reply:
        reply.read()
