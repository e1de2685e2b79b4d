"""That the bench works: tiny runs of figures, and what they leave. No bounds on figures."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.__main__ import main
from bench.figure import Bound, row
from bench.figures import FIGURES
from bench.parts.cost import memory_mb, spent, supervisors
from bench.parts.peers import Peers
from supervisor.daemon.cgroup import own_cgroup_root
from tests.parts.dockerd import require_dockerd

STATISTICS = {"n", "p50", "p95", "p99", "least", "most"}


def processes() -> set[bytes]:
    """Arguments of everything that a bench has started and not ended."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.add((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return {arguments for arguments in found if b"/bench-" in arguments}


def cgroups() -> set[str]:
    """Those of supervisors, anybody's."""
    root = own_cgroup_root("bench-test")
    if root is None:
        return set()
    root.rmdir()
    return {path.name for path in root.parent.glob("engine-supervisor-bench*")}


@pytest.mark.timeout(60)
def test_a_run_writes_its_figures_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = processes()
    assert main(["plan", "launch", "--tiny", "--into", str(tmp_path)]) == 0
    assert processes() <= before

    (path,) = tmp_path.glob("*.json")
    report: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    assert report["scale"] == "tiny"
    assert report["load"] >= 0
    assert {"kernel", "cpu", "cpus", "python", "packages", "commit"} <= set(report["machine"])
    assert [figure["name"] for figure in report["figures"]] == ["plan", "launch"]
    for figure in report["figures"]:
        assert figure["problem"] is None
        for line in figure["rows"]:
            assert set(line["ours"]) == STATISTICS
            assert line["ours"]["n"] >= 2
            assert all(set(other) == STATISTICS for other in line["beside"].values())
            assert line["target"]
            assert line["met"] in (True, False)
    (launch,) = report["figures"][1]["rows"]
    assert set(launch["beside"]) == {"Popen"}
    printed = capsys.readouterr().out
    assert all(line["what"] in printed for line in report["figures"][0]["rows"])


@pytest.mark.timeout(90)
def test_whole_lives_are_measured_and_end(tmp_path: Path) -> None:
    before, held = processes(), cgroups()
    names = ["stop", "adoption", "start", "idle"]
    assert main([*names, "--tiny", "--into", str(tmp_path)]) == 0
    assert processes() <= before
    assert cgroups() <= held

    (path,) = tmp_path.glob("*.json")
    figures = msgspec.json.decode(path.read_bytes())["figures"]
    assert [figure["name"] for figure in figures] == names
    assert [figure["problem"] for figure in figures] == [None] * len(names)
    stop, adoption, start, idle = (figure["rows"] for figure in figures)
    for line in (stop[-1], *adoption[1:]):  # promises, and no matter of speed
        assert line["ours"]["most"] == 0
        assert line["met"]
    assert set(adoption[0]["beside"]) == {"python -c pass", "its imports"}
    assert {"bare, one by one", "bare, 4 at a time"} <= set(start[0]["beside"])
    assert [line["unit"] for line in idle] == ["%", "/s", "MB", "MB"]
    assert all(line["ours"]["most"] > 0 for line in idle[2:])


@pytest.mark.timeout(90)
def test_containers_are_measured_and_end(tmp_path: Path) -> None:
    require_dockerd()
    before = processes()
    assert main(["docker", "--tiny", "--into", str(tmp_path)]) == 0
    assert processes() <= before

    (path,) = tmp_path.glob("*.json")
    (figure,) = msgspec.json.decode(path.read_bytes())["figures"]
    assert figure["problem"] is None
    exit_, ready = figure["rows"]
    assert exit_["ours"]["n"] == ready["ours"]["n"] == 1
    assert set(ready["beside"]) == {"processes"}


def test_a_peer_of_the_system_is_asked_for_only_when_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    unwanted, wanted = Peers(wanted=False), Peers()
    assert not unwanted.s6()
    assert unwanted.missing == "not asked for"
    assert wanted.missing is None
    assert not wanted.s6()
    assert wanted.missing == "no s6-svscan: apt-get install s6 execline"


def test_the_cost_of_a_process_is_that_of_those_below_it_too_but_for_engines() -> None:
    script = "import subprocess, sys; subprocess.Popen(['sleep', '60']); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + 10
            while len(both := supervisors(process.pid, "no such engine")) < 2:
                assert time.monotonic() < deadline
            # Between its fork and its exec it is still called as its parent is.
            while supervisors(process.pid, "sleep") != [process.pid]:
                assert time.monotonic() < deadline
            assert spent(both).cpu_ns > 0
            rss, pss = memory_mb(both)
            assert rss >= pss > 0
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_an_unknown_figure_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leave:
        main(["no-such-figure"])
    assert leave.value.code == 2
    said = capsys.readouterr().err
    assert "no-such-figure" in said
    assert "launch" in said


def test_figures_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(FIGURES)


@pytest.mark.parametrize(
    ("bound", "control", "met"),
    [
        (Bound(stat="p50", limit=2), [], True),
        (Bound(stat="p99", limit=2), [], False),
        (Bound(stat="p50", limit=2, at_least=True), [], True),
        (Bound(stat="p50", limit=1, beyond="control"), [1.0], True),
        (Bound(stat="p50", limit=1, beyond="control"), [0.5], False),
        (Bound(stat="p50", limit=1, beyond="control"), [], None),
        (Bound(stat="p50", limit=0, beyond="control", times=2), [1.0], True),
        (Bound(stat="p50", limit=0, beyond="control", times=2), [0.9], False),
    ],
)
def test_a_bound_may_lie_beyond_a_control(
    bound: Bound, control: list[float], met: bool | None
) -> None:
    assert row("x", "ms", [1, 2, 3], bound, beside={"control": control}).met is met
