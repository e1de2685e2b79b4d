"""The whole way: a real llama.cpp in a container, by the daemon and ``enginectl`` as people have
them.
"""

import json
import subprocess
import sys
import urllib.request
from typing import Any

from tests.daemon.engined import ROOT, Engined
from tests.parts import real_llama
from tests.parts.dockerd import Dockerd, llama_image

PREFIX = "engine-supervisor."


def enginectl(engined: Engined, *words: str) -> str:
    """What it printed; it has to succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "supervisor.cli", "--socket", str(engined.socket), *words],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def chat(port: int) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "Say something."}], "max_tokens": 4}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as reply:
        said: dict[str, Any] = json.loads(reply.read())
        return said


def test_llama_in_a_container(engined: Engined, dockerd: Dockerd) -> None:
    server, model = real_llama.require("genuine-llama-server"), real_llama.tiny_gguf()
    image = llama_image(dockerd, server)
    engined.start()
    launch = (
        *("launch", "q", "--engine", "llamacpp", "--model-path", str(model)),
        *("--runtime", "docker", "--docker-image", image, "--devices", "cpu:0"),
    )
    said = enginectl(engined, *launch)
    name, state, port, *devices = said.split()
    assert (name, state, devices) == ("q", "ready", ["cpu:0"])
    assert chat(int(port))["choices"][0]["message"]["role"] == "assistant"

    view = json.loads(enginectl(engined, "rpc", "instance.get", '{"name": "q"}'))
    container = view["record"]["ref"]["container"]
    found = dockerd.inspect(container)
    assert found is not None
    labels = found["Config"]["Labels"]
    assert labels[PREFIX + "instance"] == "q"
    assert labels[PREFIX + "nonce"] == view["record"]["nonce"]
    assert found["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")
    assert found["HostConfig"]["Init"] is True
    assert [it["HostIp"] for it in found["NetworkSettings"]["Ports"]["8080/tcp"]] == ["127.0.0.1"]
    assert "llama_server: initializing" in enginectl(engined, "logs", "q", "-n", "200")

    told = json.loads(enginectl(engined, "--json", "metrics", "q"))
    assert "unavailable" not in told
    assert told["metrics"]["generationTokensTotal"] == 4.0
    seen = json.loads(enginectl(engined, "--json", "detect"))["engines"]
    assert [(it["instance"], it["engine"]) for it in seen if it.get("container") == container] == [
        ("q", "llamacpp")
    ]

    dockerd.remove(container)
    enginectl(engined, "wait", "q", "--for", "exited")
    assert engined.story("q")[-1] == "exited"
    assert engined.records() == []
    assert enginectl(engined, *launch).split()[:2] == ["q", "ready"]
    enginectl(engined, "stop", "q")
    assert dockerd.containers(PREFIX + "instance=q") == []
