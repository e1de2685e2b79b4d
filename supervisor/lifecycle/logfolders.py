"""The folders of engines' logs: a file for each attempt, the oldest of which make room.

A file's number says its age. Its time is for people, for the wall clock steps.
"""

import os
import re
import secrets

from supervisor.contracts.failure import SpawnFailed
from supervisor.lifecycle.preflight import Problem
from supervisor.logs.series import remove

KEPT = 5
_NUMBERED = re.compile(r"(\d{6})-.*\.log")


def make_log_path(log_dir: str, name: str, stem: str, keep: int = KEPT) -> str:
    """The path of a new log in the instance's own folder, which holds ``keep`` at most.

    Raises ``Problem`` where the folder cannot be made.
    """
    folder = os.path.join(log_dir, "engines", name)
    try:
        os.makedirs(folder, mode=0o750, exist_ok=True)
        logs = sorted((_number(it), it) for it in os.listdir(folder) if it.endswith(".log"))
        for _, old in logs[: max(0, len(logs) - keep + 1)]:
            remove(os.path.join(folder, old))
    except OSError as error:
        raise Problem(
            SpawnFailed(
                detail=f"no log can be written in {folder}: {error.strerror}",
                reason="log-unwritable",
            )
        ) from error
    number = logs[-1][0] + 1 if logs else 1
    return os.path.join(folder, f"{number:06}-{stem}.log")


def forget_logs(log_dir: str, name: str) -> None:
    """Remove the logs of an instance that is forgotten. Blocks; raises ``OSError``.

    What is not ours in the folder stays, and keeps it. The folder goes out of the way first: who
    gets the name meanwhile gets a folder of its own.
    """
    folder = os.path.join(log_dir, "engines", name)
    away = os.path.join(log_dir, "engines", f".forgotten-{secrets.token_hex(4)}")
    try:
        os.rename(folder, away)
    except FileNotFoundError:
        return
    for entry in os.listdir(away):
        if entry.endswith(".log"):
            remove(os.path.join(away, entry))
    os.rmdir(away)


def _number(entry: str) -> int:
    match = _NUMBERED.fullmatch(entry)
    return int(match[1]) if match else 0
