"""The table of checks. Each looks at the facts and gives one row; none of them ends the others."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from supervisor.cli.doctor import daemon, host, storage
from supervisor.cli.doctor.facts import Facts
from supervisor.cli.doctor.finding import Finding, Verdict


class Row(msgspec.Struct, frozen=True):
    """A check's name, how it stands, the fact that says so, and what to do about it."""

    name: str
    verdict: Verdict
    fact: str
    advice: str


class Check(NamedTuple):
    """``needs`` says without what there is nothing to look at."""

    name: str
    look: Callable[[Facts], Finding]
    needs: Literal["", "daemon"] = ""


CHECKS = (
    Check("daemon", daemon.reachable),
    Check("version", daemon.version, "daemon"),
    Check("package", host.package),
    Check("config", daemon.config),
    Check("state-dir", storage.state_dir),
    Check("log-dir", storage.log_dir),
    Check("log", daemon.own_log, "daemon"),
    Check("journal", storage.journal),
    Check("records", storage.records),
    Check("cgroups", daemon.cgroups),
    Check("fd-store", daemon.fd_store),
    Check("open-files", daemon.open_files),
    Check("devices", host.devices),
    Check("containers", host.containers),
    Check("engines", host.engines),
    Check("clock", host.clock),
)


def examine(facts: Facts) -> list[Row]:
    """All rows, in the table's order."""
    return [_row(check, facts) for check in CHECKS]


def _row(check: Check, facts: Facts) -> Row:
    if check.needs and facts.info is None:
        return Row(check.name, "skip", f"needs the {check.needs}", "")
    try:
        found = check.look(facts)
    except (OSError, ValueError, LookupError) as error:
        return Row(check.name, "warn", f"cannot be looked at: {error}", "")
    return Row(check.name, found.verdict, found.fact, found.advice)
