"""Where cgroups are ours to make, on the kernel's own tree: nothing here can be made up."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.daemon.cgroup import BOOTED, DELEGATED, own_cgroup_root

ROOT = Path(__file__).parents[2]
ID = "0123456789abcdef"
ASK = f"""
from supervisor.daemon.cgroup import own_cgroup_root, step_aside
step_aside()
print(own_cgroup_root({ID!r}))
print(own_cgroup_root({ID!r}))
print(open("/proc/self/cgroup").read().splitlines()[-1].rpartition("/")[2])
"""
JOIN_AND_RUN = 'echo $$ >"$1/cgroup.procs" && exec "$2" -c "$3"'


def mount_point() -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2" and os.access(fields[1], os.W_OK) and os.geteuid() == 0:
            return Path(fields[1])
    return None


@pytest.fixture
def place() -> Iterator[Path]:
    """A cgroup of this test's own."""
    mount = mount_point()
    if mount is None:
        pytest.skip("needs root, and a writable cgroup v2: nobody else may make a cgroup to try")
    place = mount / f"engine-supervisor-test-{os.getpid()}"
    place.mkdir()
    yield place
    for folder, _, _ in os.walk(place, topdown=False):
        Path(folder).rmdir()


def ask(place: Path) -> list[str]:
    """What a process in this cgroup finds, twice, and where it ends up."""
    done = subprocess.run(
        ["sh", "-c", JOIN_AND_RUN, "sh", str(place), sys.executable, ASK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_in_a_delegated_unit_the_daemon_makes_room_for_engines(place: Path) -> None:
    os.setxattr(place, DELEGATED, b"1")
    engines = str(place / "engines")
    assert ask(place) == [engines, engines, "supervisor"]
    assert ask(place) == [engines, engines, "supervisor"], "the next daemon finds it all there"
    assert not (place / "cgroup.subtree_control").read_text().strip()


@pytest.mark.skipif(BOOTED.is_dir(), reason="systemd is PID 1: what it does not delegate is its")
def test_without_systemd_it_lies_below_our_own_and_bears_the_id(place: Path) -> None:
    root = str(place / f"engine-supervisor-{ID}")
    assert ask(place) == [root, root, place.name]


def test_what_systemd_does_not_delegate_is_not_ours(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("supervisor.daemon.cgroup._own", lambda: place)
    monkeypatch.setattr("supervisor.daemon.cgroup.BOOTED", tmp_path)
    assert own_cgroup_root(ID) is None
    assert list(place.glob("engine*")) == []


def test_below_a_threaded_cgroup_no_process_can_be_put(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (place / "threaded").mkdir()
    (place / "threaded/cgroup.type").write_text("threaded")
    monkeypatch.setattr("supervisor.daemon.cgroup._own", lambda: place / "threaded")
    monkeypatch.setattr("supervisor.daemon.cgroup.BOOTED", tmp_path / "not there")
    assert own_cgroup_root(ID) is None


def test_where_nothing_can_be_made_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("supervisor.daemon.cgroup.BOOTED", tmp_path / "not there")
    monkeypatch.setattr("supervisor.daemon.cgroup._own", lambda: None)
    assert own_cgroup_root(ID) is None
    monkeypatch.setattr("supervisor.daemon.cgroup._own", lambda: tmp_path)
    assert own_cgroup_root(ID) is None, "a directory, but no cgroup"
