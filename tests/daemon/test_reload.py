"""A changed configuration, taken over by the running daemon: by a call, and by SIGHUP."""

import signal
import time
from typing import Any

import pytest

from supervisor.client import RpcError
from supervisor.contracts import rpc
from supervisor.contracts.config import ConfigError, parse_config
from supervisor.contracts.instance import LaunchParams
from supervisor.contracts.rpc import PlanReply, ReloadReply
from supervisor.daemon.reload import differing, taken_over
from tests.daemon.engined import Engined, stop
from tests.lifecycle.house import pid_of


def told(engined: Engined, kind: str, times: int) -> dict[str, Any]:
    deadline = time.monotonic() + 10
    while len(found := [it for it in engined.events() if it["kind"] == kind]) < times:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found[times - 1]


def test_recipes_change_and_engines_do_not_notice(engined: Engined) -> None:
    client = engined.start()
    running = client.launch(engined.params("running"))
    with pytest.raises(RpcError) as unknown:
        client.launch(LaunchParams(name="chat", recipe="chat"))
    assert unknown.value.code == rpc.NO_SUCH_RECIPE
    before = engined.config.read_text()
    engined.config.write_text(
        f'log-level = "error"\n{before}\n'
        f'[recipes.chat]\nengine = "llamacpp"\nmodel-path = "{engined.folder}/model.gguf"\n'
        f'binary = "{engined.stub()}"\ndevices = ["cpu:0"]\n'
    )
    reply = client.call("supervisor.reload", None, ReloadReply)
    assert reply == ReloadReply(changed=("recipes.chat",), at_restart=("log-level",))
    assert told(engined, "config-reloaded", 1)["changed"] == ["recipes.chat"]
    assert client.launch(LaunchParams(name="chat", recipe="chat")).state == "ready"
    assert pid_of(client.get("running")) == pid_of(running)
    engined.config.write_text(f"{before}\n[restart]\ninitial-ms = 0\n")
    with pytest.raises(RpcError, match="initial-ms") as bad:
        client.call("supervisor.reload", None, ReloadReply)
    assert bad.value.code == rpc.NOT_DONE
    assert told(engined, "warning", 1)["code"] == "config-rejected"
    assert client.call("engine.plan", LaunchParams(name="x", recipe="chat"), PlanReply).plan.argv
    for name in ("chat", "running"):
        stop(client, name)


def test_sighup_takes_over_too_and_reopens_the_journal(engined: Engined) -> None:
    client = engined.start()
    journal = engined.folder / "log" / "events.jsonl"
    journal.rename(journal.with_suffix(".away"))
    engined.config.write_text(engined.config.read_text() + "[restart]\nmax-ms = 5000\n")
    assert engined.process
    engined.process.send_signal(signal.SIGHUP)
    assert told(engined, "config-reloaded", 1)["changed"] == ["restart.max-ms"]
    engined.config.write_text("nonsense")
    engined.process.send_signal(signal.SIGHUP)
    assert told(engined, "warning", 1)["code"] == "config-rejected"
    assert client.info().pid == engined.pid


UNREADABLE = {
    "an integer of 5000 digits": "[ports]\nfirst = " + "1" * 5_000,
    "a number beyond 64 bits": "[ports]\nfirst = " + "9" * 40,
    "arrays in arrays": "x = " + "[" * 100_000,
    "tables in tables": "x = " + "{a=" * 100_000,
    "a key with a dot": '[recipes."a.b".env]\n"x.y" = 1\n',
    "no text": "\udcff",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_no_text_is_more_than_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(text)


def test_no_file_ends_the_daemon(engined: Engined) -> None:
    """Neither by a call nor by SIGHUP, and the configuration stays as it was."""
    client = engined.start()
    good = engined.config.read_text()
    for times, text in enumerate(UNREADABLE.values(), 1):
        engined.config.write_bytes(text.encode(errors="surrogateescape"))
        assert engined.process
        engined.process.send_signal(signal.SIGHUP)
        assert told(engined, "warning", 2 * times - 1)["code"] == "config-rejected"
        with pytest.raises(RpcError):
            client.raw("supervisor.reload")
    engined.config.write_text(good)
    assert client.call("supervisor.reload", None, ReloadReply).changed == ()
    assert client.info().pid == engined.pid


OLD = """
socket = "/a"
[access]
read = [1]
[recipes.a]
engine = "vllm"
model-path = "/m"
"""
NEW = """
socket = "/b"
[access]
read = [2]
socket-mode = "0660"
[devices]
fit = "refuse"
[[devices.static]]
id = "d"
accelerator = "cuda"
"""


def test_the_keys_are_those_of_the_file() -> None:
    old, new = parse_config(OLD), parse_config(NEW)
    now = taken_over(old, new)
    assert differing(old, now) == ("access.read", "devices.fit", "recipes.a")
    assert differing(now, new) == ("socket", "access.socket-mode", "devices.static")
    assert differing(old, old) == ()
