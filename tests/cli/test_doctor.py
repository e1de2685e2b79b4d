"""``enginectl doctor`` without a daemon, on conditions that are really there."""

import json
import os
import resource
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.cli.doctor import daemon, host, storage
from supervisor.cli.doctor.checks import CHECKS, examine
from supervisor.cli.doctor.facts import Facts
from supervisor.client import DaemonUnreachable
from supervisor.contracts.paths import Paths
from supervisor.contracts.rpc import SupervisorInfo
from tests.cli.conftest import Run

INFO = SupervisorInfo(
    version="0.0.1",
    node="self",
    boot_id="b",
    supervisor_id="s",
    pid=7,
    started_at="2026-01-02T03:04:05.000Z",
    counts={},
    paths={},
)
"""Of a daemon that has an older version, and the pid 7 below some root."""


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    """No daemon, and everything in a folder of its own."""
    paths = Paths(str(tmp_path / "none"), str(tmp_path / "state"), str(tmp_path / "log"))
    return Facts(paths, {"PATH": str(tmp_path / "bin")}, trouble=DaemonUnreachable("nobody"))


@contextmanager
def mounted(folder: Path, *words: str) -> Iterator[Path]:
    folder.mkdir()
    made = subprocess.run(["mount", *words, str(folder)], check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"mounting needs root: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_without_a_daemon_all_rows_are_there_and_it_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_SUPERVISOR_STATE_DIR", str(tmp_path / "state"))
    words = ["--socket", str(tmp_path / "none"), "doctor"]
    assert main(words) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["CHECK", "STANDS", "FACT"]
    assert [line.split()[0] for line in lines[1 : len(CHECKS) + 1]] == [it.name for it in CHECKS]
    assert lines[1].split()[1] == "fail"
    assert "systemctl start engined" in "".join(lines)
    assert main([*words, "--json"]) == 1
    told = json.loads(capfd.readouterr().out)
    assert told["ok"] is False
    assert [it["name"] for it in told["checks"]] == [it.name for it in CHECKS]
    assert {it["verdict"] for it in told["checks"]} <= {"ok", "warn", "fail", "skip"}


def test_a_daemon_that_answers_little_is_no_traceback(run: Run) -> None:
    """The fake has a defect in one answer, a pid that is not its own, and no place of its own."""
    found = run("doctor", "--json")
    told = json.loads(found.out.splitlines()[-1])  # above it is what the fake says of its defect
    checks = {it["name"]: it["verdict"] for it in told["checks"]}
    assert (checks["daemon"], found.err) == ("ok", "")


def test_a_full_disk(facts: Facts, tmp_path: Path) -> None:
    with mounted(tmp_path / "state", "-t", "tmpfs", "-o", "size=128m", "none") as disk:
        assert storage.state_dir(facts).verdict == "warn"
        with (disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
            for _ in range(100):
                file.write(b"\0" * (1 << 20))
        found = storage.state_dir(facts)
        assert (found.verdict, "tmpfs, 28.0 MiB free" in found.fact) == ("fail", True)
        assert "`state-dir`" in found.advice


def test_a_disk_that_takes_no_writing(facts: Facts, tmp_path: Path) -> None:
    with mounted(tmp_path / "state", "-t", "tmpfs", "-o", "ro,size=1m", "none"):
        found = storage.state_dir(facts)
        assert (found.verdict, "read-only" in found.fact) == ("fail", True)


def test_a_folder_on_a_network(facts: Facts, tmp_path: Path) -> None:
    """By the kernel's table, which says so of a mount that nobody may touch."""
    (tmp_path / "proc/self").mkdir(parents=True)
    there = f"29 1 0:25 / {tmp_path}/state rw - nfs4 server:/x rw\n"
    table = f"22 1 8:1 / / rw - ext4 /dev/a rw\n{there}"
    (tmp_path / "proc/self/mountinfo").write_text(table)
    found = storage.state_dir(replace(facts, root=tmp_path))
    assert (found.verdict, found.fact) == ("fail", f"{tmp_path}/state is on nfs4")
    assert storage.log_dir(replace(facts, root=tmp_path)).verdict != "fail"


def test_a_file_in_the_place_of_a_folder(facts: Facts, tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    assert "is no folder" in storage.state_dir(facts).fact


def test_gaps_of_the_journal(facts: Facts, tmp_path: Path) -> None:
    assert storage.journal(facts).verdict == "skip"
    (tmp_path / "log").mkdir()
    path = tmp_path / "log" / "events.jsonl"
    line = b'{"seq":1,"epoch":"e","at":"t","node":"self","kind":"stopped","reason":"journal-gap"}\n'
    path.write_bytes(line)
    assert storage.journal(facts).verdict == "ok"
    gap = b'{"seq":9,"epoch":"e","at":"t","node":"self","kind":"journal-gap","from":4,"to":9}\n'
    path.write_bytes(line + gap + b"\xff\n")
    found = storage.journal(facts)
    assert (found.verdict, found.fact) == ("warn", f"gaps in {path}: 1, the last 4 to 9")


def test_few_files_to_open(facts: Facts) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        found = daemon.open_files(facts)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (found.verdict, "512 files" in found.fact) == ("warn", True)
    assert "LimitNOFILE" in found.advice


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nOK", "OK"),
        (b"nonsense\r\n", "answers, and is no container engine"),
    ],
)
def test_a_container_engine(facts: Facts, tmp_path: Path, reply: bytes, said: str) -> None:
    path = tmp_path / "docker.sock"
    facts = replace(facts, env={"DOCKER_HOST": f"unix://{path}"})
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        refused = host.containers(facts)
        assert f"{path}: Connection refused" in refused.fact
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        found = host.containers(facts)
        thread.join()
    assert f"{path}: {said}" in found.fact
    assert found.verdict == ("ok" if said == "OK" else "warn")


def test_engines_on_the_path(facts: Facts, tmp_path: Path) -> None:
    assert host.engines(facts).verdict == "warn"
    program = tmp_path / "bin" / "llama-server"
    program.parent.mkdir()
    program.touch(mode=0o755)
    assert host.engines(facts) == ("ok", str(program), "")


def test_a_driver_whose_library_is_missing(facts: Facts, tmp_path: Path) -> None:
    if os.path.exists("/proc/driver/nvidia/version"):
        pytest.skip("this machine has the library")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    facts = replace(facts, root=tmp_path)
    assert host.devices(facts).verdict == "warn"
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    found = host.devices(facts)
    assert (found.verdict, "libnvidia-ml.so.1" in found.fact) == ("fail", True)


@pytest.mark.parametrize(("places", "verdict"), [("1024", "ok"), ("0", "warn"), ("", "warn")])
def test_the_store_for_descriptors_of_the_unit(
    facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: str, verdict: str
) -> None:
    """By a stand-in for systemctl, for systemd is not PID 1 here."""
    assert daemon.fd_store(replace(facts, root=tmp_path)).verdict == "skip"
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("0::/system.slice/engined.service/supervisor\n")
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    wanted = "show --property FileDescriptorStoreMax --value -- engined.service"
    systemctl.write_text(f'#!/bin/sh\n[ "$*" = "{wanted}" ] && echo {places}\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{systemctl.parent}:{os.environ['PATH']}")
    found = daemon.fd_store(replace(facts, root=tmp_path, info=INFO))
    assert (found.verdict, "engined.service" in found.fact) == (verdict, True)


def test_a_daemon_of_another_version(facts: Facts) -> None:
    found = daemon.version(replace(facts, info=INFO))
    assert (found.verdict, "0.0.1" in found.fact) == ("warn", True)


def test_the_clock_is_asked_and_not_set(facts: Facts) -> None:
    assert host.clock(facts).verdict in ("ok", "warn")


def test_a_check_that_cannot_look_ends_no_other(facts: Facts, tmp_path: Path) -> None:
    rows = {row.name: row for row in examine(replace(facts, root=tmp_path / "nothing"))}
    assert rows["open-files"].fact.startswith("cannot be looked at: ")
    assert len(rows) == len(CHECKS)
