"""A real Podman of a test run's own, serving the Docker-compatible API on its own socket.

Its storage and its state lie in its own folder. Containers are to be on the host's network: a
bridge of Podman's would stay behind with its firewall rules.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.parts.dockerd import BUSYBOX, ENGINE_SCRIPT, PATH, UP_S, Dockerd, root_of

ENGINE = "docker.io/test/engine:latest"
"""The stand-in engine of ``dockerd``, under the name that Podman gives what is imported."""


def require_podman() -> None:
    """Skip the calling test where there is no Podman, or fail it in CI."""
    reason = _lacking()
    if reason and os.environ.get("ENGINE_SUPERVISOR_REQUIRE_PARTS"):
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)


def _lacking() -> str | None:
    if os.geteuid() != 0:
        return "a Podman of the tests' own can be started by root alone"
    for program, package in (("podman", "podman"), ("runc", "runc")):
        if not shutil.which(program, path=PATH):
            return f"{program} is not here; get it with: apt-get install {package}"
    if not Path("/usr/libexec/podman/catatonit").exists():
        return "Podman's init is not here; get it with: apt-get install catatonit"
    if not BUSYBOX.exists():
        return "busybox is not here; get it with: apt-get install busybox-static"
    return None


class Podman(Dockerd):
    """Asked as a Docker Engine is, and started otherwise."""

    def start(self) -> None:
        limits = self.folder / "containers.conf"
        # Its defaults are beyond the hard limits of many a sandbox.
        limits.write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *("podman", "--root", f"{self.folder}/root"),
                    *("--runroot", f"{self.folder}/run", "--cgroup-manager", "cgroupfs"),
                    *("--storage-driver", "vfs", "--runtime", "runc"),
                    *("system", "service", "--time", "0", f"unix://{self.socket}"),
                ],
                env={
                    "PATH": PATH,
                    "HOME": str(self.folder),
                    "XDG_RUNTIME_DIR": str(self.folder),
                    "CONTAINERS_CONF": str(limits),
                },
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


@contextmanager
def podman() -> Iterator[Podman]:
    folder = Path(tempfile.mkdtemp(prefix="es-podman-"))
    serving = Podman(folder)
    try:
        serving.start()
        script = folder / "engine"
        script.write_text(ENGINE_SCRIPT)
        script.chmod(0o755)
        applets = ("sh", "sleep", "httpd", "cat", "echo", "mkdir")
        serving.import_image(
            "test/engine:latest",
            root_of(
                {"/bin/busybox": BUSYBOX, "/engine": script},
                {f"/bin/{it}": "busybox" for it in applets},
            ),
            "ENV PATH=/bin",
            'ENTRYPOINT ["/engine"]',
        )
        yield serving
    finally:
        if serving.process is not None and serving.answers():
            for container in serving.containers():
                serving.remove(container)
        serving.end(signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)
