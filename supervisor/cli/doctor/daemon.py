"""Checks of the daemon: does it answer, is it this version, what may it use."""

import os
import re
from pathlib import Path

from msgspec import UNSET

from supervisor import __version__
from supervisor.cli.checking import DEFAULT_FILE, read_config
from supervisor.cli.doctor.facts import Facts
from supervisor.cli.doctor.finding import Finding
from supervisor.client import PermissionDenied
from supervisor.contracts.config import ConfigError

FEW_FILES = 4096
"""Below it a few hundred engines with followers of their logs come to the end of them."""
SYSTEMCTL_S = 5.0


def reachable(facts: Facts) -> Finding:
    match facts.trouble:
        case None:
            assert facts.info
            return Finding("ok", f"answers at {facts.paths.socket}, pid {facts.info.pid}")
        case PermissionDenied() as error:
            return Finding("fail", str(error), "Run this as the daemon's user, or see `access`.")
        case error:
            return Finding(
                "fail",
                str(error),
                "Start it (`systemctl start engined`, or `engined`), or name its socket with "
                "--socket or ENGINE_SUPERVISOR_SOCKET.",
            )


def version(facts: Facts) -> Finding:
    assert facts.info
    if facts.info.version == __version__:
        return Finding("ok", __version__)
    fact = f"the daemon is {facts.info.version}, this client {__version__}"
    return Finding("warn", fact, "Restart the daemon after an upgrade; engines stay up meanwhile.")


def config(facts: Facts) -> Finding:
    """The file that the daemon was started with, else the unit's."""
    path = _config_path(facts)
    if path is None:
        return Finding("ok", "the daemon runs without a file, on defaults")
    if facts.info is None and not os.path.exists(path):
        return Finding("skip", f"no {path}")
    try:
        found = read_config(path)
    except PermissionError:
        return Finding("skip", f"{path} may not be read by this user")
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        advice = f"Mend it, then `enginectl config check {path}`; a reload or a start refuses it."
        return Finding("fail", f"{path}: {error}", advice)
    return Finding("ok", f"{path}, {len(found.recipes)} recipes")


def _config_path(facts: Facts) -> str | None:
    if facts.info is None:
        return DEFAULT_FILE
    words = (facts.process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--config":
            named = value if equals else words[at + 1]
            here = os.path.isabs(named)
            return named if here else str(Path(os.readlink(facts.process / "cwd"), named))
    return None


def own_log(facts: Facts) -> Finding:
    assert facts.info
    health = facts.info.log
    if health is UNSET or not health.lost:
        return Finding("ok", "no line lost")
    fact = f"{health.lost} lines lost since the start; {health.error or 'now it works'}"
    return Finding("warn", fact, "See where the daemon's stderr goes, and who reads it.")


_WITHOUT_CGROUPS = (
    "Without cgroups a process that left its session and closed its log is found by its nonce "
    "alone, and an end takes longer. Under systemd: `Delegate=yes`, as in docs/systemd.md."
)


def cgroups(facts: Facts) -> Finding:
    if facts.info is not None and facts.info.cgroup_root is not UNSET:
        if facts.info.cgroup_root:
            return Finding("ok", f"each engine gets one below {facts.info.cgroup_root}")
        return Finding("warn", "engines get none of their own", _WITHOUT_CGROUPS)
    mounts = (facts.root / "proc/self/mountinfo").read_text(errors="replace")
    if " - cgroup2 " not in mounts:
        return Finding("warn", "cgroup v2 is not mounted", _WITHOUT_CGROUPS)
    return Finding("ok", "cgroup v2 is mounted; the daemon tells whether it may use it")


def fd_store(facts: Facts) -> Finding:
    if not (facts.root / "run/systemd/system").is_dir():
        return Finding("skip", "systemd is not PID 1 here")
    if facts.info is None:
        return Finding("skip", "needs the daemon")
    unit = re.search(r"/([^/]+\.service)(?:/|$)", (facts.process / "cgroup").read_text(), re.M)
    if unit is None:
        return Finding("warn", "the daemon is no unit of systemd", "See docs/systemd.md.")
    size = _shown(unit[1], "FileDescriptorStoreMax")
    if size.isdecimal() and int(size):
        return Finding("ok", f"{size} places in {unit[1]}")
    advice = "`FileDescriptorStoreMax=1024` keeps how engines end while the daemon is down."
    return Finding("warn", f"{unit[1]} has none", advice)


def _shown(unit: str, name: str) -> str:
    import subprocess

    command = ["systemctl", "show", "--property", name, "--value", "--", unit]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise OSError("systemctl does not answer") from None
    return done.stdout.strip()


def open_files(facts: Facts) -> Finding:
    told = re.search(r"^Max open files +(\S+)", (facts.process / "limits").read_text(), re.M)
    soft = told[1] if told else "unknown"
    whose = "the daemon" if facts.info else "a daemon started from here"
    fact = f"{whose} may open {soft} files"
    if soft.isdecimal() and int(soft) < FEW_FILES:
        return Finding(
            "warn", fact, "`LimitNOFILE=65536:524288` in the unit, or `ulimit -n 65536`."
        )
    return Finding("ok", fact)
