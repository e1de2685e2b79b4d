"""What a client with the role `operate` or `read` gets of a real daemon, as another uid."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.client import Client, RpcError
from supervisor.contracts import rpc
from supervisor.contracts.rpc import PlanReply, ReloadReply
from supervisor.lifecycle.sizes import MOST_WORDS
from tests.daemon.engined import Engined, serves, stop

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

NOBODY = 65_534
_ASK = """
import os, socket, sys
folder, name = os.path.split(sys.argv[1])
os.chdir(folder)  # as root: another run of pytest may close the folders above at any moment
os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.connect(name)
s.sendall(sys.argv[2].encode() + b"\\n")
s.shutdown(socket.SHUT_WR)
while chunk := s.recv(65536):
    sys.stdout.buffer.write(chunk)
"""


class Served:
    """A daemon for which uid 65534 has a role."""

    def __init__(self, engined: Engined, role: str) -> None:
        self.engined = engined
        self.root = engined.folder / "models"
        self.root.mkdir()
        self.model = self.root / "m.gguf"
        self.model.touch()
        self.stub = engined.stub()
        engined.folder.chmod(0o711)
        engined.config.write_text(
            engined.config.read_text()
            + f'[access]\n{role} = [{NOBODY}]\nsocket-mode = "0666"\n'
            + f'model-roots = ["{self.root}"]\n'
            + f'[engines]\nllamacpp = "{self.stub}"\nmlx = "{self.stub}"\n'
            + '[recipes.r]\nengine = "llamacpp"\ndevices = ["cpu:0"]\n'
            + f'model-path = "{self.model}"\nenv = {{ LLAMA_ARG_UI = "0" }}\n'
        )
        self.client: Client = engined.start()

    def ask(self, method: str, **params: Any) -> Any:
        """What uid 65534 is answered. Its interpreter starts as root, to find its modules."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _ASK, self.engined.socket, json.dumps(request)],
            capture_output=True,
            timeout=60,
            check=True,
        )
        return json.loads(done.stdout)

    def launch(self, method: str = "instance.launch", **members: Any) -> Any:
        usual = {"engine": "llamacpp", "modelPath": str(self.model), "devices": ["cpu:0"]}
        return self.ask(method, **{"name": "x", **usual, **members})


@pytest.fixture
def operator(engined: Engined) -> Served:
    return Served(engined, "operate")


def forbidden(answer: Any) -> str:
    assert answer.get("error", {}).get("code") == rpc.FORBIDDEN, answer
    return str(answer["error"]["message"])


def test_an_operator_launches_stops_and_starts_again(operator: Served) -> None:
    link = operator.engined.folder / "link"
    link.symlink_to(operator.root)
    answer = operator.launch(modelPath=f"{link}/m.gguf", extraArgs=["-c", "64"])
    port = answer["result"]["record"]["port"]
    assert serves(port)
    pid = answer["result"]["record"]["ref"]["pid"]
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert str(operator.model).encode() in argv  # and not the link, which may lead elsewhere now
    assert "result" in operator.ask("instance.restart", name="x", graceMs=0)
    assert "result" in operator.ask("instance.stop", name="x", graceMs=0)
    assert "result" in operator.ask("instance.launch", name="y", recipe="r")
    stop(operator.client, "y")


def test_an_operator_runs_no_code_of_its_own(operator: Served, tmp_path: Path) -> None:
    """A model folder of its own whose config names a Python file, which MLX then runs."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.json").write_text('{"model_file": "evil.py"}')
    trusted: dict[str, Any] = {"engine": "mlx", "extraArgs": ["--trust-remote-code"]}
    assert "model-roots" in forbidden(operator.launch(engine="mlx", modelPath=str(mine)))
    assert "--trust-remote-code" in forbidden(operator.launch(**trusted))
    assert "--trust-remote-code" in forbidden(
        operator.launch(engine="mlx", options={"trustRemoteCode": True})
    )
    tries: tuple[dict[str, Any], ...] = (
        {"command": ["/bin/sh", "-c", "true"]},
        {"binary": "/bin/sh"},
        {"dockerImage": "evil/image"},
        {"env": {"BASH_ENV": str(mine)}},
        {"env": {"LD_PRELOAD": str(mine)}},
        {"env": {"GGML_BACKEND_PATH": str(mine)}},
    )
    for members in tries:
        forbidden(operator.launch(**members))
    assert operator.engined.story() == []


def test_an_operator_writes_no_files(operator: Served, tmp_path: Path) -> None:
    written = tmp_path / "written"
    for args in (
        ["--log-file", str(written)],
        ["--log_file", str(written)],
        [f"--log-file={written}"],
        ["-c", "64", f"--log-file {written}"],
        ["--slot-save-path", str(tmp_path)],
    ):
        forbidden(operator.launch(extraArgs=args))
    assert not written.exists()


@pytest.mark.parametrize("role", ["read", "operate"])
def test_a_plan_reads_nothing_beyond_the_roots(engined: Engined, tmp_path: Path, role: str) -> None:
    served = Served(engined, role)
    there, missing = tmp_path / "there.gguf", tmp_path / "missing.gguf"
    there.touch()
    told = [
        forbidden(served.launch("engine.plan", modelPath=str(path))).replace(str(path), "")
        for path in (there, missing)
    ]
    assert told[0] == told[1]
    forbidden(served.launch("engine.plan", extraArgs=["--mmproj", str(there)]))
    answer = served.launch("engine.plan")
    assert str(served.model) in answer["result"]["plan"]["argv"]


def test_the_bounds_follow_a_reload(operator: Served, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "m.gguf").touch()
    forbidden(operator.launch("engine.plan", modelPath=f"{other}/m.gguf"))
    config = operator.engined.config
    config.write_text(
        config.read_text().replace("model-roots = [", f'model-roots = ["{other}", ', 1)
    )
    reply = operator.client.call("supervisor.reload", None, ReloadReply)
    assert reply.changed == ("access.model-roots",)
    assert "result" in operator.launch("engine.plan", modelPath=f"{other}/m.gguf")


@pytest.mark.parametrize(("words", "code"), [(100_000, rpc.INVALID_LAUNCH), (MOST_WORDS, None)])
def test_plans_of_many_words_hold_up_nobody(engined: Engined, words: int, code: int | None) -> None:
    """Twelve clients that ask for nothing but plans, and one that asks who is there."""
    served = Served(engined, "read")
    params = served.engined.params(extra_args=("--x",) * words)
    told: list[int | None] = []

    def ask() -> None:
        with Client(str(engined.socket)) as client:
            try:
                client.call("engine.plan", params, PlanReply)
                told.append(None)
            except RpcError as error:
                told.append(error.code)

    clients = [threading.Thread(target=ask) for _ in range(12)]
    for client in clients:
        client.start()
    took = []
    while any(client.is_alive() for client in clients):
        began = time.monotonic()
        served.client.info()
        took.append(time.monotonic() - began)
    assert told == [code] * 12
    assert max(took) < 1.0


_STAY = """
import json, os, socket, sys
os.chdir(sys.argv[1])
os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.connect("s")
replies = s.makefile("r")
for line in sys.stdin:
    try:
        s.sendall(line.encode())
    except OSError:
        pass  # hung up; what it was told is there to be read
    print(replies.readline(), end="", flush=True)
"""


def test_who_loses_a_role_loses_it_at_once(operator: Served) -> None:
    """On a connection that is kept: a reload asks again who may do what."""
    engined = operator.engined
    drain, info = (
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": f"supervisor.{it}"}) + "\n"
        for it in ("drain", "info")
    )

    def reload(before: str, after: str) -> None:
        engined.config.write_text(engined.config.read_text().replace(before, after))
        operator.client.call("supervisor.reload", None, ReloadReply)

    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _STAY, str(engined.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None

        def ask(request: str) -> Any:
            assert peer.stdin is not None
            assert peer.stdout is not None
            peer.stdin.write(request)
            peer.stdin.flush()
            return json.loads(peer.stdout.readline())

        assert "result" in ask(drain)
        reload(f"operate = [{NOBODY}]", f"read = [{NOBODY}]")
        assert "takes the role operate" in forbidden(ask(drain))
        assert "result" in ask(info)
        reload(f"read = [{NOBODY}]", "read = []")
        assert f"uid {NOBODY} may not use this daemon" in forbidden(ask(info))
        peer.stdin.close()


def test_root_is_bound_by_nothing(operator: Served, tmp_path: Path) -> None:
    log = tmp_path / "its.log"
    params = operator.engined.params(extra_args=("--log-file", str(log)), env={"LD_X": "1"})
    assert operator.client.launch(params).state == "ready"
    stop(operator.client)
