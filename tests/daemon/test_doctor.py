"""``enginectl doctor`` against the real daemon: well, and with something wrong."""

import json
import signal
import subprocess
import sys
from typing import Any

from supervisor import __version__
from tests.daemon.engined import ROOT, Engined


def examined(engined: Engined, code: int) -> dict[str, dict[str, Any]]:
    words = ("--socket", str(engined.socket), "doctor", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "supervisor.cli", *words],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, b"")
    told = json.loads(done.stdout)
    assert told["ok"] is (code == 0)
    return {it["name"]: it for it in told["checks"]}


def test_a_daemon_that_is_well(engined: Engined) -> None:
    client = engined.start()
    rows = examined(engined, 0)
    for name in ("daemon", "version", "package", "config", "log", "journal", "records"):
        assert rows[name]["verdict"] == "ok", rows[name]
    assert rows["version"]["fact"] == __version__
    assert rows["config"]["fact"].startswith(str(engined.config))
    assert rows["state-dir"]["fact"].startswith(f"{engined.folder}/state, ")
    assert rows["devices"]["fact"] == "cuda, 2 devices to lease"
    root = client.info().cgroup_root
    assert rows["cgroups"]["verdict"] == ("ok" if root else "warn")


def test_what_is_wrong_is_named_with_what_helps(engined: Engined) -> None:
    engined.start()
    engined.end(signal.SIGTERM)
    (engined.folder / "state" / "instances" / "broken.json").write_text("{")
    engined.start()
    engined.config.write_text("nonsense")
    (engined.folder / "log" / "events.jsonl").unlink()
    rows = examined(engined, 1)
    assert (rows["config"]["verdict"], "config check" in rows["config"]["advice"]) == ("fail", True)
    assert rows["records"]["verdict"] == "warn"
    assert "`enginectl release broken`" in rows["records"]["advice"]
    assert rows["journal"]["verdict"] == "warn"


def test_a_daemon_whose_log_goes_nowhere(engined: Engined) -> None:
    with open("/dev/full", "wb") as full:
        program = "from supervisor.daemon import main; raise SystemExit(main())"
        engined.process = subprocess.Popen(
            [sys.executable, "-c", program, "--config", str(engined.config)],
            cwd=ROOT,
            stderr=full.fileno(),
        )
    engined.answering()
    row = examined(engined, 0)["log"]
    assert row["verdict"] == "warn"
    assert "No space left on device" in row["fact"]
