"""A real Docker Engine of a test run's own: its data, socket and bridge are its alone.

It is started by hand, for a machine whose process 1 is no systemd, touches no firewall rule and no
setting of the host's network, and is ended by its pid. Its images are made from files of this host,
so no registry is asked.

With a stand-in on its PATH, dockerd takes device requests for NVIDIA GPUs on a host without any:
containers start for real and get the variables that NVIDIA's own hook would act on.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from supervisor.launchers.docker.ask import ask
from supervisor.launchers.docker.engine import EngineDown, EngineRefused

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UP_S = 30.0
_BRIDGES = count()
"""One engine of a process each: the tests' own, and a bench's beside it."""
BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "sleep", "httpd", "cat", "echo", "trap", "env", "ls", "wget", "mkdir")
TINY = "test/busybox:1"
"""Two megabytes: a shell, ``sleep``, ``httpd``."""
ENGINE = "test/engine:1"
"""As much of an engine as a shell can be: what it does is said by variables."""
ENGINE_SCRIPT = """#!/bin/sh
trap go=1 USR1
echo "arguments: $*"
while [ $# -gt 0 ]; do [ "$1" = --port ] && LISTEN=$2; shift; done
[ -n "$SAY" ] && echo "$SAY"
sleep ${LOAD_S:-0}
[ -n "$EXIT" ] && { echo "last words" >&2; exit $EXIT; }
[ -n "$HOG" ] && { while [ -z "$go" ]; do sleep 0.1; done; x=aaaaaaaaaaaaaaaa; }
[ -n "$HOG" ] && while [ ${#x} -lt 200000000 ]; do x=$x$x; done
mkdir -p /www && echo '{"status":"ok"}' >/www/health
httpd -f -p ${LISTEN:-8080} -h /www &
trap 'echo "leaving"; kill $!; exit 0' TERM
[ -n "$DEAF" ] && trap 'echo "TERM is nothing to me"' TERM
echo "serving"
[ -n "$FAIL_S" ] && { sleep "$FAIL_S"; echo "last words" >&2; kill $!; exit 1; }
while :; do wait; [ -n "$go" ] && { echo "$LATER"; go=; }; done
"""
HOOK = """#!/bin/sh
state=$(cat)
bundle=$(printf %s "$state" | sed -n 's/.*"bundle":"\\([^"]*\\)".*/\\1/p')
grep -o '"NVIDIA[^"]*"' "$bundle/config.json" >>{log}
"""


def require_dockerd() -> None:
    """Skip the calling test where no Docker Engine can be run, or fail it in CI."""
    if reason := lacking():
        if os.environ.get("ENGINE_SUPERVISOR_REQUIRE_PARTS"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def lacking() -> str | None:
    if os.geteuid() != 0:
        return "a Docker Engine of the tests' own can be started by root alone"
    for program, package in (
        ("dockerd", "docker.io"),
        ("runc", "runc"),
        ("iptables", "iptables"),
        ("ip", "iproute2"),
    ):
        if not shutil.which(program, path=PATH):
            return f"{program} is not here; get it with: apt-get install {package}"
    if not BUSYBOX.exists():
        return "busybox is not here; get it with: apt-get install busybox-static"
    return None


class Dockerd:
    """Started, ended and started again at will."""

    def __init__(self, folder: Path, bridge: str | None = None) -> None:
        self.folder = folder
        self.socket = f"{folder}/s"
        self.log = folder / "log"
        self.gpu_log = folder / "gpu.log"
        number = next(_BRIDGES)
        self.bridge = bridge or f"es{os.getpid()}x{number}"
        self.net = f"172.{30 - number % 10}.{os.getpid() % 250}.1/24"
        self.process: subprocess.Popen[bytes] | None = None

    # Its life

    def start(self) -> None:
        """Return once it answers."""
        for left in ("pid", "exec/containerd/containerd.pid"):
            (self.folder / left).unlink(missing_ok=True)  # of one that was killed
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *("dockerd", "--data-root", f"{self.folder}/root"),
                    *("--exec-root", f"{self.folder}/exec", "--pidfile", f"{self.folder}/pid"),
                    *("-H", f"unix://{self.socket}", "--bridge", self.bridge),
                    *("--iptables=false", "--ip6tables=false", "--ip-forward=false"),
                    *("--ip-masq=false", "--live-restore", "--shutdown-timeout", "5"),
                    *("--add-runtime", f"nvidia={self.folder}/bin/nvidia-container-runtime"),
                    *("--log-level", "warn"),
                ],
                env={"PATH": f"{self.folder}/bin:{PATH}", "HOME": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + UP_S
        while not self.answers():
            assert self.process.poll() is None, self.log.read_text()[-2_000:]
            assert time.monotonic() < deadline, self.log.read_text()[-2_000:]
            time.sleep(0.05)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Containers live on: it is started with ``--live-restore``."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(UP_S)
            self.process = None

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.end(number)
        self.start()

    def answers(self) -> bool:
        try:
            return bool(ask(self.socket, "/_ping") == "OK")
        except EngineDown:
            return False

    # What it has

    def inspect(self, container: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = ask(self.socket, f"/containers/{container}/json", within_s=20)
        except EngineRefused as no:
            if no.missing:
                return None
            raise
        return found

    def said(self, container: str) -> str:
        """What it has printed so far, as the engine frames it. A container is listed a moment
        before Docker finds it by its id: then that is nothing.
        """
        try:
            return str(ask(self.socket, f"/containers/{container}/logs?stdout=1"))
        except EngineRefused as no:
            if no.missing:
                return ""
            raise

    def containers(self, label: str | None = None) -> list[str]:
        """The ids of all containers, dead ones too."""
        filters = quote(json.dumps({"label": [label]} if label else {}))
        found = ask(self.socket, f"/containers/json?all=1&filters={filters}", within_s=20)
        return [it["Id"] for it in found]

    def left(self) -> dict[str, list[str]]:
        """Everything that a launch could leave behind."""
        volumes = ask(self.socket, "/volumes", within_s=20)["Volumes"] or []
        networks = ask(self.socket, "/networks", within_s=20)
        return {
            "containers": self.containers(),
            "volumes": [it["Name"] for it in volumes],
            "networks": sorted(it["Name"] for it in networks),
        }

    def do(self, *words: str) -> None:
        """``POST`` to a container: pause, kill, stop."""
        container, verb = words
        ask(self.socket, f"/containers/{container}/{verb}", "POST", within_s=30)

    def remove(self, container: str) -> None:
        with suppress(EngineRefused):
            ask(self.socket, f"/containers/{container}?force=1&v=1", "DELETE", within_s=30)

    def create(self, name: str, command: Sequence[str], labels: Mapping[str, str]) -> str:
        """A container of somebody else's making; started it is not."""
        body = {"Image": TINY, "Cmd": list(command), "Labels": dict(labels)}
        body["HostConfig"] = {"NetworkMode": "none", "Init": True}
        said = self._post(f"/containers/create?name={name}", json.dumps(body).encode())
        return str(said["Id"])

    def run(self, name: str, command: Sequence[str], labels: Mapping[str, str]) -> str:
        container = self.create(name, command, labels)
        self.do(container, "start")
        return container

    def import_image(self, name: str, tar: bytes, *changes: str) -> None:
        """Make an image of a tar of its root."""
        repo, _, tag = name.rpartition(":")
        query = "".join(f"&changes={quote(change)}" for change in changes)
        self._post(f"/images/create?fromSrc=-&repo={quote(repo)}&tag={tag}{query}", tar)

    def has_image(self, name: str) -> bool:
        try:
            ask(self.socket, f"/images/{name}/json")
        except EngineRefused:
            return False
        return True

    def _post(self, what: str, body: bytes) -> Any:
        return ask(self.socket, what, "POST", within_s=120, body=body)


def root_of(files: Mapping[str, Path], links: Mapping[str, str] | None = None) -> bytes:
    """A tar of an image's root: files of this host, under other names, and symbolic links."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("tmp", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(entry)
        for name, path in files.items():
            tar.add(path.resolve(), arcname=name.lstrip("/"))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def libraries_of(program: Path) -> dict[str, Path]:
    """What a program of this host loads, its loader included, each at its own path."""
    said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    found: dict[str, Path] = {}
    for line in said.splitlines():
        paths = [word for word in line.split() if word.startswith("/")]
        if paths:
            found[paths[0]] = Path(paths[0])
    return found


def llama_image(dockerd: Dockerd, server: Path) -> str:
    """An image of a ``llama-server`` of this host, laid out as llama.cpp's own images are."""
    name = "test/llama:1"
    if not dockerd.has_image(name):
        files = libraries_of(server) | {"/app/llama-server": server}
        files |= {f"/app/{it.name}": it for it in server.parent.glob("*.so*")}
        changes = 'ENTRYPOINT ["/app/llama-server"]', "WORKDIR /app", "ENV LD_LIBRARY_PATH=/app"
        dockerd.import_image(name, root_of(files), *changes)
    return name


@contextmanager
def started(bridge: str | None = None) -> Iterator[Dockerd]:
    """A Docker Engine for as long as the block runs; nothing is left of it afterwards.

    A second one beside it gets ``none`` for its bridge.
    """
    folder = Path(tempfile.mkdtemp(prefix="es-docker-"))
    dockerd = Dockerd(folder, bridge)
    try:
        _stand_ins(dockerd)
        _bridge("add", dockerd.bridge, dockerd.net)
        dockerd.start()
        dockerd.import_image(
            TINY,
            root_of({"/bin/busybox": BUSYBOX}, {f"/bin/{it}": "busybox" for it in APPLETS}),
            "ENV PATH=/bin",
        )
        script = folder / "engine"
        script.write_text(ENGINE_SCRIPT)
        script.chmod(0o755)
        dockerd.import_image(
            ENGINE,
            root_of(
                {"/bin/busybox": BUSYBOX, "/engine": script},
                {f"/bin/{it}": "busybox" for it in APPLETS},
            ),
            "ENV PATH=/bin",
            'ENTRYPOINT ["/engine"]',
        )
        yield dockerd
    finally:
        if dockerd.process is not None and dockerd.answers():
            for container in dockerd.containers():
                dockerd.remove(container)
        dockerd.end()
        _bridge("del", dockerd.bridge)
        _unmount(folder)
        shutil.rmtree(folder)


def _bridge(verb: str, name: str, net: str = "") -> None:
    if name == "none":
        return
    ip = shutil.which("ip", path=PATH) or "ip"
    if verb == "del":
        subprocess.run([ip, "link", "del", name], check=False, capture_output=True)
        return
    subprocess.run([ip, "link", "add", name, "type", "bridge"], check=True, capture_output=True)
    subprocess.run([ip, "addr", "add", net, "dev", name], check=True, capture_output=True)
    subprocess.run([ip, "link", "set", name, "up"], check=True, capture_output=True)


def _stand_ins(dockerd: Dockerd) -> None:
    folder = dockerd.folder / "bin"
    folder.mkdir()
    hook = folder / "nvidia-container-runtime-hook"
    hook.write_text(HOOK.format(log=dockerd.gpu_log))
    runtime = folder / "nvidia-container-runtime"
    runtime.write_text('#!/bin/sh\nexec runc "$@"\n')
    for file in (hook, runtime):
        file.chmod(0o755)


def _unmount(folder: Path) -> None:
    """What a killed engine left mounted."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    mounts = [line.split()[1] for line in lines if line.split()[1].startswith(str(folder))]
    for mount in sorted(mounts, reverse=True):
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
