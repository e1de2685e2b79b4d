"""The shipped unit files, as systemd itself reads them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SHIPPED = Path(__file__).parents[2] / "systemd"
EXPOSURE = 3.1
"""What docs/systemd.md explains, point by point."""


@pytest.fixture
def analyze() -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        reason = "systemd-analyze is not here; get it with: apt-get install systemd"
        if os.environ.get("ENGINE_SUPERVISOR_REQUIRE_PARTS"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return program


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that is there, which is the one thing an installation changes."""
    for path in SHIPPED.glob("engined.*"):
        text = path.read_text().replace("/opt/engine-supervisor/bin/engined", sys.executable)
        (tmp_path / path.name).write_text(text)
    return tmp_path


def test_verify_prints_nothing(analyze: str, units: Path) -> None:
    """SYS-1."""
    files = sorted(units.glob("engined.*"))
    assert [file.name for file in files] == ["engined.service", "engined.socket"]
    done = subprocess.run(
        [analyze, "verify", *map(str, files)],
        env=os.environ | {"SYSTEMD_LOG_LEVEL": "info"},
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "engined." in line]
    assert (done.returncode, ours) == (0, [])


def test_hardening_does_not_get_less(analyze: str, units: Path) -> None:
    service = units / "engined.service"
    done = subprocess.run(
        [analyze, "security", "--offline=true", f"--threshold={EXPOSURE * 10:.0f}", str(service)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "harmful",
    [
        "PrivateTmp=yes",  # its /tmp goes with the daemon, and engines are in it
        "PrivateDevices=yes",
        "ProtectClock=yes",  # allows /dev/rtc, and by that no other device
        "DevicePolicy=",
        "DeviceAllow=",
        "ProtectControlGroups=yes",
        "ProcSubset=",
        "PrivateUsers=yes",  # then everybody who connects is nobody
        "MemoryDenyWriteExecute=yes",
        "RemoveIPC=yes",  # takes the shared memory of engines that run on
        "MemoryMax=",
        "CPUWeight=",
    ],
)
def test_nothing_is_set_that_engines_do_not_bear(harmful: str) -> None:
    assert harmful not in (SHIPPED / "engined.service").read_text()
