"""The real daemon as a process of its own, in a folder of its own, and a client for it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from supervisor.client import Client, DaemonUnreachable
from supervisor.contracts.instance import InstanceView, LaunchParams
from supervisor.contracts.rpc import StopParams
from tests.lifecycle.house import A, B, bearers, pool
from tests.parts.cgroups import sweep
from tests.parts.stub import stub_binary

ROOT = Path(__file__).parents[2]
SOON = 20.0

# It can be told to die at a step of some instance's life, as no signal from outside can hit it.
PROGRAM = """
import functools, importlib, os, pathlib, signal, sys

def die(step):
    if step == os.environ.get("DIE_AT"):
        os.kill(os.getpid(), signal.SIGKILL)

program = importlib.import_module("supervisor.daemon.main")
hardware = os.environ.get("HARDWARE")
program.run = functools.partial(
    program.run, at=die, hardware=pathlib.Path(hardware) if hardware else None
)
sys.exit(program.main())
"""


class Engined:
    """Starts and ends the daemon any number of times on one state directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "s"
        self.config = folder / "engined.toml"
        self.stderr = folder / "stderr"
        self.process: subprocess.Popen[bytes] | None = None
        self.clients: list[Client] = []
        ports = pool()
        self.config.write_text(
            f'socket = "{self.socket}"\n'
            f'state-dir = "{folder}/state"\n'
            f'log-dir = "{folder}/log"\n'
            f"[ports]\nfirst = {ports.first}\nlast = {ports.last}\n"
            '[devices]\nprobe = "off"\n'
            + "".join(
                f'[[devices.static]]\nid = "{card}"\naccelerator = "cuda"\n' for card in (A, B)
            )
        )

    # Its life

    def spawn(
        self, env: Mapping[str, str], pass_fds: tuple[int, ...] = ()
    ) -> subprocess.Popen[bytes]:
        with self.stderr.open("ab") as stderr:
            return subprocess.Popen(
                [sys.executable, "-c", PROGRAM, "--config", str(self.config)],
                cwd=ROOT,
                env={**os.environ, **env},
                pass_fds=pass_fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )

    def start(self, *, pass_fds: tuple[int, ...] = (), **env: str) -> Client:
        """Start it, and return once it answers."""
        self.process = self.spawn(env, pass_fds)
        return self.answering()

    def answering(self) -> Client:
        """A client of the process that was just started, once that answers."""
        assert self.process is not None
        client = self.client()
        deadline = time.monotonic() + SOON
        while True:
            try:
                client.info()
                return client
            except DaemonUnreachable:
                assert self.process.poll() is None, self.stderr.read_text()[-2_000:]
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def client(self) -> Client:
        """Another connection; all of them are closed at the end."""
        self.clients.append(Client(str(self.socket)))
        return self.clients[-1]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def end(self, number: signal.Signals) -> int:
        """Send it a signal and return its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.gone()

    def gone(self) -> int:
        assert self.process is not None
        status = self.process.wait(SOON)
        self.process = None
        return status

    def close(self) -> None:
        """End it and every engine it ever launched."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(SOON)
        for client in self.clients:
            client.close()
        for pid in bearers(self.nonces()):
            os.kill(pid, signal.SIGKILL)
        sweep(self.folder / "state")

    # Its engines

    def stub(self, **knobs: str | float) -> str:
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        return stub_binary(folder, f"engine-{len(list(folder.iterdir()))}", **knobs)

    def params(self, name: str = "x", **members: Any) -> LaunchParams:
        model = self.folder / "model.gguf"
        model.touch()
        usual: dict[str, Any] = {"engine": "llamacpp", "model_path": str(model)}
        if "binary" not in members:
            usual["binary"] = self.stub()
        return LaunchParams(name=name, **usual | {"devices": (A,)} | members)

    # What it wrote

    def events(self) -> list[dict[str, Any]]:
        path = self.folder / "log" / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def story(self, name: str = "x") -> list[str]:
        return [it["kind"] for it in self.events() if it.get("instance") == name]

    def nonces(self) -> set[str]:
        return {it["nonce"] for it in self.events() if "nonce" in it}

    def records(self) -> list[str]:
        return sorted(it.name for it in (self.folder / "state" / "instances").iterdir())


def stop(client: Client, name: str = "x") -> InstanceView:
    return client.stop(StopParams(name=name))


def refused(config: Path) -> subprocess.CompletedProcess[bytes]:
    """Run the plain program, which is to end by itself."""
    program = "from supervisor.daemon import main; raise SystemExit(main())"
    command = [sys.executable, "-c", program, "--config", str(config)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SOON, check=False)


def serves(port: int) -> bool:
    """Whether an engine answers, asked directly."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
        return bool(reply.status == 200)
