"""The keys of an engine that has them from a file: read as it reads them, for our own requests."""

import os
import stat
from posixpath import join

from supervisor.contracts.engine import LaunchPlan
from supervisor.engines.api_key import api_key, api_key_file, keys_of
from supervisor.lifecycle.house import House
from supervisor.lifecycle.ledger import Ledger
from supervisor.patience import Overdue

LARGEST = 64 << 10
READ_S = 5.0


async def key_for(house: House, ledger: Ledger, plan: LaunchPlan) -> str | None:
    """A key that the engine takes, and from here on a secret like all others of its file.

    A container's file is not ours to see. One that cannot be read in time gives no key, and a
    warning: then the engine refuses what it shows to nobody without one.
    """
    said = api_key(plan.argv, plan.env)
    path = api_key_file(plan.argv, plan.env) if plan.kind == "process" else None
    if path is None:
        return said
    try:
        text = await house.looking.run(_text, join(plan.workdir or "", path), within_s=READ_S)
    except (OSError, ValueError, Overdue) as error:
        problem = getattr(error, "strerror", None) or str(error)
    else:
        keys = keys_of(text)
        ledger.learn(keys)
        return said or next(iter(keys), None)
    ledger.warn("key-file-unreadable", f"{path}: {problem}; requests of ours go without its keys")
    return said


def _text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is no ordinary file")
        return file.read(LARGEST).decode(errors="replace")
