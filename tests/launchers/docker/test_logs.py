"""What containers print: followed, read for a cause, and warned of while they run."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from supervisor.contracts.event import Unhealthy, Warning_
from supervisor.contracts.failure import ExitedEarly
from supervisor.logs.reading import tail
from tests.daemon.engined import ROOT, SOON, Engined, stop
from tests.launchers.docker.home import contained, container_of, opened_with
from tests.lifecycle.house import A, Home, until
from tests.parts.dockerd import Dockerd

NVML = "Failed to initialize NVML: Unknown Error"
"""What everything that asks NVML prints in a container whose device cgroup was written anew."""
INSTANCE = "engine-supervisor.instance=x"
LOOKS_S = 7.0
"""Two looks at the logs of engines that run, and some more."""


def withdrawn(home: Home) -> list[str]:
    return [it.detail for it in home.of(Warning_) if it.code == "device-withdrawn"]


async def test_a_gpu_that_is_taken_from_a_running_container(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    """DKR-5: one hint, however often it says so; and no verdict, for it may serve on."""
    async with opened_with(tmp_path, dockerd) as home:
        view = await home.launch(**contained(devices=(A,), env={"LATER": NVML}))
        assert withdrawn(home) == []
        dockerd.do(container_of(view), "kill?signal=USR1")
        await until(lambda: bool(withdrawn(home)))
        (hint,) = withdrawn(home)
        assert NVML in hint
        assert "systemctl daemon-reload" in hint
        dockerd.do(container_of(view), "kill?signal=USR1")
        await until(lambda: tail(view.log_path or "", 9).lines.count(NVML) == 2)
        await anyio.sleep(LOOKS_S)
        assert len(withdrawn(home)) == 1
        assert home.supervisor.get("x").state == "ready"
        assert home.of(Unhealthy) == []
        assert await home.holders() == {A: ["x"]}
        await home.stop()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("gguf_init_from_file_ptr: failed to read magic", "model-corrupt"),
        ("error: invalid argument: --no-such-flag", "bad-flag"),
    ],
)
async def test_last_words_are_diagnosed(
    tmp_path: Path, dockerd: Dockerd, said: str, code: str
) -> None:
    """As those of processes are: from the copy of what the container printed."""
    async with opened_with(tmp_path, dockerd) as home:
        failure = await home.refused(**contained(env={"EXIT": "1", "SAY": said}))
        assert isinstance(failure, ExitedEarly)
        assert failure.diagnosis
        assert (failure.diagnosis.code, failure.diagnosis.evidence) == (code, said)


def test_followed_to_its_end(engined: Engined, dockerd: Dockerd) -> None:
    """``enginectl logs -f`` prints what comes as it comes, and ends with the container."""
    engined.start().launch(engined.params(**contained(env={"LATER": "more"})))
    (container,) = dockerd.containers(INSTANCE)
    follow = [sys.executable, "-m", "supervisor.cli", "--socket", str(engined.socket)]
    with subprocess.Popen(
        [*follow, "logs", "-f", "x"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        lines = iter(following.stdout.readline, "")
        assert any(line == "serving\n" for line in lines)
        dockerd.do(container, "kill?signal=USR1")
        assert next(lines) == "more\n"
        dockerd.do(container, "kill?signal=TERM")
        assert list(lines) == ["leaving\n"]
    assert following.returncode == 0


def test_a_hint_is_given_once_by_all_daemons(engined: Engined, dockerd: Dockerd) -> None:
    """DKR-5."""
    view = engined.start().launch(engined.params(**contained(env={"LATER": NVML})))
    (container,) = dockerd.containers(INSTANCE)
    for life in (1, 2):
        dockerd.do(container, "kill?signal=USR1")
        deadline = time.monotonic() + SOON
        while tail(view.log_path or "", 9).lines.count(NVML) < life or not hints(engined):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if life == 1:
            engined.end(signal.SIGKILL)
            client = engined.start()
    time.sleep(LOOKS_S)
    assert len(hints(engined)) == 1
    assert stop(client).state == "exited"


def hints(engined: Engined) -> list[str]:
    return [it["detail"] for it in engined.events() if it.get("code") == "device-withdrawn"]
