"""A real systemd to try units on: PID 1 of a container, in half a second, gone without a trace.

Its root is an overlay of this host's, so interpreters, checkout and programs are there, and nothing
that is written inside comes out. It has a network of its own, and cgroup v2 alone.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

BOOT = Path(__file__).with_name("boot_systemd.sh")
SOON_S = 20.0
COVERED = (Path("/tmp"), Path("/run"))
"""Where systemd-nspawn mounts folders of its own over those of the host."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def require_systemd() -> None:
    """Skip the calling test where no systemd can be booted, or fail it in CI."""
    if reason := _lacking():
        _lacks(reason)


def _lacks(reason: str) -> NoReturn:
    if os.environ.get("ENGINE_SUPERVISOR_REQUIRE_PARTS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _lacking() -> str | None:
    if os.geteuid() != 0:
        return "a systemd in a container can be booted by root alone"
    for program, package in (("systemd-nspawn", "systemd-container"), ("unshare", "util-linux")):
        if not shutil.which(program, path=PATH):
            return f"{program} is not here; get it with: apt-get install {package}"
    if not _cgroup_mounts():
        return "no cgroup v2 is mounted here, which a systemd needs"
    allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return None if allowed.returncode == 0 else "root may not make mount namespaces here"


class Machine:
    """A booted systemd. Files in it are reached by ``path``, programs run in it by ``run``."""

    def __init__(self, process: subprocess.Popen[bytes], console: Path) -> None:
        self._process = process
        self._console = console
        self.leader = 0

    def path(self, inside: str) -> Path:
        return Path(f"/proc/{self.leader}/root{inside}")

    def write(self, inside: str, text: str) -> None:
        place = self.path(inside)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def run(self, *argv: str, check: bool = True) -> str:
        """The output of a program that runs inside. ``AssertionError`` if it fails."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C", "--", *argv],
            env={"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "SYSTEMD_PAGER": ""},
            capture_output=True,
            text=True,
            timeout=SOON_S,
            check=False,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def show(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--property", name, "--value", unit)

    def open_to_all(self, path: Path) -> None:
        """Let every user inside reach what is at a path of the host, which stays as it is."""
        for folder in path.absolute().parents:
            here = self.path(str(folder))
            if here.stat().st_dev != folder.stat().st_dev:  # the overlay, not the host's own
                here.chmod(here.stat().st_mode | 0o055)
            elif folder.stat().st_mode & 0o005 != 0o005:
                _lacks(f"{folder} is closed to other users, and so to the daemon in the machine")

    def boot(self) -> None:
        """Wait until it has started all that it starts by itself."""
        until(self._booted)

    def _booted(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(f"systemd did not come up: {self._console.read_text()}")
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return False
        self.leader = int(children[0])
        state = self.run("systemctl", "is-system-running", check=False)
        return state in ("running", "degraded")

    def power_off(self) -> None:
        with suppress(ProcessLookupError):
            if self.leader:
                os.kill(self.leader, signal.SIGRTMIN + 4)
        try:
            self._process.wait(SOON_S if self.leader else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """A machine for as long as the block runs. Asserts afterwards that nothing is left of it."""
    name = f"test-systemd-{os.getpid()}"
    cgroups = [place / name for place in _cgroup_mounts()]
    for place in cgroups:
        place.mkdir()
    console = folder / "console"
    try:
        with console.open("wb") as output:
            process = subprocess.Popen(
                [str(BOOT), str(folder), ":".join(map(str, cgroups)), *_binds()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | {"PATH": PATH},
            )
        machine = Machine(process, console)
        try:
            machine.boot()
            yield machine
        finally:
            machine.power_off()
    finally:
        (cgroups[0] / "cgroup.kill").write_text("1")
        for place in cgroups:
            for below, _, _ in os.walk(place, topdown=False):
                until(lambda below=below: _removed(Path(below)))  # type: ignore[misc]
    assert str(folder) not in Path("/proc/self/mounts").read_text()


def _removed(cgroup: Path) -> bool:
    """Its last processes may be on their way out."""
    with suppress(OSError):
        cgroup.rmdir()
    return not cgroup.exists()


def _cgroup_mounts() -> list[Path]:
    """Of version 2, and of systemd's own hierarchy where there is one: systemd-nspawn uses both."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    unified = [Path(line[1]) for line in lines if line[2] == "cgroup2"]
    named = [Path(line[1]) for line in lines if "name=systemd" in line[3].split(",")]
    return unified[:1] + named[:1] if unified else []


def _binds() -> list[str]:
    """The checkout, its venv and its Python, as far as the machine would not show them."""
    bound: list[Path] = []
    for place in (Path(__file__).parents[2], Path(sys.prefix), Path(sys.base_prefix)):
        if _hidden(place) and not any(map(place.is_relative_to, bound)):
            bound.append(place)
    return [f"--bind-ro={place}" for place in bound]


def _hidden(place: Path) -> bool:
    """The overlay shows no other file system than the root's, and nothing that is covered."""
    foreign = place.stat().st_dev != Path("/").stat().st_dev
    return foreign or any(map(place.is_relative_to, COVERED))


def until(condition: Callable[[], object], within: float = SOON_S) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
