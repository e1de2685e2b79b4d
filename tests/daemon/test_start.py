"""How the daemon starts, and how it refuses to."""

import json
import os
import signal
import socket
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from supervisor.client import Client, RpcError
from supervisor.contracts.failure import AlreadyRunning
from supervisor.contracts.rpc import LogLines, LogsParams
from supervisor.daemon.main import main
from tests.daemon.engined import Engined, refused, serves, stop
from tests.lifecycle.house import A, B
from tests.parts import real_llama


def test_the_socket_and_the_state_are_ours_alone(engined: Engined) -> None:
    client = engined.start()
    client.launch(engined.params())
    assert stat.S_IMODE(engined.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE((engined.folder / "state").stat().st_mode) == 0o700
    for record in (engined.folder / "state" / "instances").iterdir():
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
    stop(client)
    engined.end(signal.SIGTERM)
    assert not engined.socket.exists()


def test_a_second_daemon_is_refused(engined: Engined, tmp_path: Path) -> None:
    """By the state directory, whatever socket it would use; the first one is not disturbed.

    RPC-1, GPU-7.
    """
    client = engined.start()
    other = tmp_path / "other.toml"
    other.write_text(f'socket = "{tmp_path}/s2"\nstate-dir = "{tmp_path}/state"\n')
    for config in (engined.config, other):
        second = refused(config)
        assert second.returncode == 69
        [line] = second.stderr.decode().splitlines()[-1:]
        assert line.startswith("engined: ")
        assert "another" in line or "already running" in line or "belongs to" in line
        assert client.info().pid == engined.pid
    assert engined.socket.exists()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("sockett = 'x'", "sockett"),
        ("[ports]\nfirst = 'x'", "ports.first"),
        ("[ports]\nfirst = 40000\nlast = 50000", "ports"),
        ("[recipes.r]\nengine = 'llamacpp'\nmodel-path = '/m'\nport = 'x'", "recipes.r.port"),
        ("[[devices.static]]\nid = 'a'\naccelerator = 'tpu'", "devices.static"),
        ("not toml", "TOML"),
    ],
)
def test_a_bad_config_is_refused_by_its_key(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    done = refused(path)
    assert done.returncode == 78
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("engined: ")
    assert str(path) in line
    assert key in line
    assert list(tmp_path.iterdir()) == [path]


def test_a_config_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = refused(tmp_path / "none.toml")
    assert done.returncode == 78
    assert "none.toml" in done.stderr.decode()


@pytest.mark.parametrize(("key", "code"), [("socket", 69), ("state-dir", 78), ("log-dir", 78)])
def test_a_path_that_cannot_be_made_says_what_to_set(tmp_path: Path, key: str, code: int) -> None:
    (tmp_path / "file").touch()
    usual = {"socket": "s", "state-dir": "state", "log-dir": "log"}
    config = tmp_path / "c.toml"
    lines = (f'{it} = "{tmp_path}/{at}"\n' for it, at in (usual | {key: "file/x/y"}).items())
    config.write_text("".join(lines))
    done = refused(config)
    assert done.returncode == code
    line = done.stderr.decode().splitlines()[-1]
    assert line.startswith("engined: cannot ")
    assert f"{tmp_path}/file/x" in line
    assert f"`{key}` in the config" in line


def test_help_tells_exit_codes_and_paths(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if line[2:3].isdigit()] == [
        "0",
        "1",
        "69",
        "78",
    ]
    assert "XDG_RUNTIME_DIR" in shown


def test_a_stale_socket_is_taken_over(engined: Engined) -> None:
    engined.start()
    engined.end(signal.SIGKILL)
    assert engined.socket.exists()
    assert engined.start().info().counts == {}


def test_the_daemons_log_is_json_and_holds_no_secret(engined: Engined) -> None:
    """And neither do the events (ARG-4)."""
    secret = "s3cr3t-of-a-launch"
    client = engined.start()
    given: dict[str, Any] = {
        "env": {"HF_TOKEN": secret},
        "extra_args": ("--api-key", secret),
        "binary": engined.stub(say=f"the token is {secret}", load=60, exit_after=0.1),
    }
    with pytest.raises(Exception, match="exited") as failed:
        client.launch(engined.params(**given))
    assert secret not in str(failed.value)
    client.launch(engined.params("y", env={"HF_TOKEN": secret}))
    shown = client.raw("instance.list").decode()
    stop(client, "y")
    engined.end(signal.SIGTERM)
    lines = engined.stderr.read_text().splitlines()
    assert lines
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert any(json.loads(line)["event"] == "serving" for line in lines)
    told = (engined.folder / "log" / "events.jsonl").read_text()
    assert "HF_TOKEN" in told
    assert secret not in told + shown + "\n".join(lines)


class Proxy:
    """Answers 503 to everything and counts who asked."""

    def __init__(self) -> None:
        self.hits = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.hits += 1
            with client, suppress(OSError):
                client.sendall(b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n")

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


def test_no_proxy_stands_between_us_and_our_engines(engined: Engined) -> None:
    """HLT-1."""
    proxy = Proxy()
    names = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
    try:
        env: dict[str, Any] = dict.fromkeys(names, proxy.url)
        client = engined.start(**env, NO_PROXY="", no_proxy="")
        assert client.launch(engined.params(ready_deadline_ms=5_000)).state == "ready"
        assert client.metrics("x").unavailable is UNSET
        stop(client)
        assert proxy.hits == 0
    finally:
        proxy.close()


def test_a_real_server_answers_a_chat(engined: Engined) -> None:
    """ADOPT-1: before and after the daemon is killed; and its log goes on where it was."""
    server = real_llama.genuine_server() or real_llama.shim_server()
    client = engined.start()
    view = client.launch(
        engined.params(
            binary=str(server),
            model_path=str(real_llama.tiny_gguf()),
            devices=("cpu:0",),
            served_model_name="tiny",
        )
    )
    assert view.state == "ready"
    assert serves(view.record.port)
    assert chat(view.record.port)["choices"][0]["message"]["role"] == "assistant"
    first = client.logs("x")
    engined.end(signal.SIGKILL)
    client = engined.start()
    adopted = client.get("x")
    assert (adopted.state, adopted.record) == ("ready", view.record)
    with pytest.raises(RpcError) as twice:
        client.launch(engined.params())
    assert twice.value.failure == AlreadyRunning(name="x")
    assert chat(view.record.port)["model"] == "tiny"
    more = LogsParams(name="x", log=first.log, after=first.cursor)
    assert any(client.call("instance.logs", more, LogLines).lines)
    assert stop(client).state == "exited"
    assert {it.device for it in client.leases().leases if it.holders} == set()


def chat(port: int) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    with socket.create_connection(("127.0.0.1", port), 20) as link:
        data = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {len(data)}\r\n"
        link.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
        reply = b"".join(iter(lambda: link.recv(65536), b""))
    answer: dict[str, Any] = json.loads(reply.partition(b"\r\n\r\n")[2])
    return answer


def test_devices_that_the_config_declares_are_leased(engined: Engined) -> None:
    client: Client = engined.start()
    assert client.profile().accelerator == "cuda"
    client.launch(engined.params("a", devices=(A, B)))
    holders = {it.device: [one.name for one in it.holders] for it in client.leases().leases}
    assert holders == {A: ["a"], B: ["a"], "cpu:0": []}
    stop(client, "a")


def test_an_engine_inherits_nothing_of_the_daemons(engined: Engined) -> None:
    """PRT-3: neither its connections nor what it was itself started with."""
    hear, tell = os.pipe()
    facts = engined.folder / "facts.json"
    try:
        clients = [engined.start(pass_fds=(hear, tell)), *(engined.client() for _ in range(3))]
        assert {it.info().pid for it in clients} == {engined.pid}
        clients[0].launch(engined.params(binary=engined.stub(dump=str(facts))))
    finally:
        os.close(hear)
        os.close(tell)
    found = {fd: it for fd, it in json.loads(facts.read_text())["fds"].items() if "/proc" not in it}
    assert sorted(found) == ["0", "1", "2"]
    stop(clients[0])
