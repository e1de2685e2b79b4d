"""STR-5 against the real daemon: what could not be spawned is a typed failure and leaves nothing.

The missing working directory of (d) cannot be asked for by a launch: only a plan names one. The
launcher's own tests have it.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.client import RpcError
from supervisor.contracts.failure import SpawnFailed, SpawnReason
from supervisor.contracts.instance import LaunchParams
from tests.daemon.engined import Engined, stop
from tests.lifecycle.house import A


def script(path: Path, first: str, mode: int = 0o755) -> str:
    path.write_text(f"{first}\nexit 0\n")
    path.chmod(mode)
    return str(path)


def no_log_folder(engined: Engined) -> LaunchParams:
    """A file is where its folder has to be, which stops root as well."""
    (engined.folder / "log" / "engines").mkdir(parents=True, exist_ok=True)
    (engined.folder / "log" / "engines" / "x").write_text("not a folder")
    return engined.params()


def closed_log_folder(engined: Engined) -> LaunchParams:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    folder = engined.folder / "log" / "engines"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0)
    return engined.params()


def no_binary(engined: Engined) -> LaunchParams:
    return engined.params(binary=str(engined.folder / "absent"))


def plain_file(engined: Engined) -> LaunchParams:
    return engined.params(binary=script(engined.folder / "plain", "#!/bin/sh", 0o644))


def no_interpreter(engined: Engined) -> LaunchParams:
    return engined.params(binary=script(engined.folder / "script", "#!/nowhere/python"))


def no_program_format(engined: Engined) -> LaunchParams:
    """Found out by the kernel alone, at the exec behind the gate."""
    return engined.params(binary=script(engined.folder / "words", "just words"))


def no_model(engined: Engined) -> LaunchParams:
    return engined.params(model_path=str(engined.folder / "absent.gguf"))


CASES: list[tuple[Callable[[Engined], LaunchParams], SpawnReason, str]] = [
    (no_log_folder, "log-unwritable", "log"),
    (closed_log_folder, "log-unwritable", "log"),
    (no_binary, "binary-missing", "absent"),
    (plain_file, "not-executable", "plain is not executable"),
    (no_interpreter, "not-executable", "/nowhere/python"),
    (no_program_format, "not-executable", "words"),
    (no_model, "model-missing", "absent.gguf"),
]


@pytest.mark.parametrize(("make", "reason", "said"), CASES, ids=[it[0].__name__ for it in CASES])
def test_nothing_that_was_not_spawned_is_shown_as_running(
    engined: Engined,
    make: Callable[[Engined], LaunchParams],
    reason: SpawnReason,
    said: str,
) -> None:
    client = engined.start()
    with pytest.raises(RpcError) as refused:
        client.launch(make(engined))
    failure = refused.value.failure
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == reason
    assert said in failure.detail
    assert client.list().instances == ()
    assert {it.device: it.holders for it in client.leases().leases}[A] == ()
    assert engined.records() == []
    assert [it for it in engined.story() if it == "launch-failed"] == ["launch-failed"]
    log = engined.folder / "log" / "engines"
    log.chmod(0o755) if log.exists() else None
    (log / "x").unlink() if (log / "x").is_file() else None
    assert client.launch(engined.params()).state == "ready"  # the daemon, name and device are well
    assert stop(client).state == "exited"
