"""ARG-4 at the real daemon: a recipe with five secrets; and every reply, event and log of ours."""

import signal
import stat

import pytest

from supervisor.client import Client, RpcError
from supervisor.contracts.failure import ExitedEarly
from supervisor.contracts.instance import LaunchParams
from supervisor.contracts.rpc import ListParams, LogsParams, NameParams
from tests.daemon.engined import Engined, stop
from tests.lifecycle.house import A, B

KEY, SAME, HUB_VARIABLE, HUB, PROXY = SECRETS = tuple(f"s3cr3t-{at}-value" for at in range(1, 6))


def recipe(engined: Engined, name: str, *, dies: bool) -> LaunchParams:
    """The words of the case; the stub repeats the command line that it was started with."""
    model = engined.folder / "model.gguf"
    model.touch()
    path = engined.folder / name
    end = "exit 3" if dies else f'exec {engined.stub()} "$@"'
    path.write_text(f'#!/bin/sh\necho "starting: $0 $*"\necho "with $HF_TOKEN"\n{end}\n')
    path.chmod(0o755)
    words = ["--api-key", KEY, f"--api-key={SAME}", "--hf-token", HUB]
    with engined.config.open("a") as config:
        config.write(
            f'[recipes.{name}]\nengine = "llamacpp"\nmodel-path = "{model}"\n'
            f'binary = "{path}"\nextra-args = {words}\n'
            f'env = {{ HF_TOKEN = "{HUB_VARIABLE}", HTTPS_PROXY = "http://me:{PROXY}@proxy:1" }}\n'
        )
    return LaunchParams(name=name, recipe=name, devices=(B if dies else A,))


def replies(client: Client) -> dict[str, str]:
    """What every method that tells of instances says, as it was sent."""
    told = {
        method: client.raw(method).decode()
        for method in (
            *("supervisor.info", "host.profile", "device.snapshot", "device.leases"),
            *("engine.list", "engine.detect", "instance.list", "metrics.text"),
        )
    }
    told["all"] = client.raw("instance.list", ListParams(all=True)).decode()
    for name in ("serves", "dies"):
        told[f"get {name}"] = client.raw("instance.get", NameParams(name=name)).decode()
        told[f"logs {name}"] = client.raw(
            "instance.logs", LogsParams(name=name, lines=100)
        ).decode()
    told["metrics"] = client.raw("instance.metrics", NameParams(name="serves")).decode()
    return told


def test_a_recipes_secrets_are_told_to_nobody(engined: Engined) -> None:
    serving = recipe(engined, "serves", dies=False)
    dying = recipe(engined, "dies", dies=True)
    client = engined.start()
    told = {"plan": client.raw("engine.plan", serving).decode()}
    told["launch"] = client.raw("instance.launch", serving).decode()
    with pytest.raises(RpcError) as failed:
        client.launch(dying)
    assert isinstance(failed.value.failure, ExitedEarly)
    assert "starting: " in failed.value.failure.log_tail
    told["error"] = f"{failed.value.message} {failed.value.data!r}"
    told |= replies(client)
    assert "starting: " in told["logs serves"]  # else its silence would prove nothing

    state, socket = engined.folder / "state", engined.socket
    files = [it for it in state.rglob("*.json") if it.is_file()]
    assert [it for it in files if KEY in it.read_text()], "a restart needs it"
    assert {stat.S_IMODE(it.stat().st_mode) for it in files} == {0o600}
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600

    stop(client, "serves")
    engined.end(signal.SIGTERM)
    told["events"] = (engined.folder / "log" / "events.jsonl").read_text()
    told["daemon"] = engined.stderr.read_text()
    leaks = {where: secret for where, text in told.items() for secret in SECRETS if secret in text}
    assert leaks == {}
    assert "HF_TOKEN" in told["events"]  # names are told, values are not
