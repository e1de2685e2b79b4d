"""That the bench works: a tiny run of two figures, and what it leaves. No bounds on figures."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.__main__ import main
from bench.figure import Bound, row
from bench.figures import FIGURES

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
    ],
)
def test_a_bound_may_lie_beyond_a_control(
    bound: Bound, control: list[float], met: bool | None
) -> None:
    assert row("x", "ms", [1, 2, 3], bound, beside={"control": control}).met is met
