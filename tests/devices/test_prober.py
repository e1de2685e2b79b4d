"""The probe process when its driver hangs: what is known stays known, and one process is all."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from supervisor.devices import prober
from tests.devices.probing import Ask, probes
from tests.parts.fake_nvml import FakeNvml, gpu, uuid

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "PATIENCE_S", 0.3)
    monkeypatch.setattr(prober, "RETRY_S", 0.3)


@pytest.fixture
def hung(nvml: FakeNvml, ask: Ask) -> Ask:
    """One device is known, and then its driver hangs."""
    nvml.say(gpu(0, util=37))
    ask.devices()
    nvml.say(gpu(0, util=99), "hang nvmlDeviceGetUtilizationRates")
    return ask


def test_a_hung_driver_keeps_nobody_waiting(hung: Ask) -> None:
    """TEL-4: one wait, then none, and the old figures with their age."""
    began = time.monotonic()
    held = hung()
    assert 0.3 <= time.monotonic() - began < 2
    assert held.state == "stale"
    assert held.answer.accelerators[0].utilization_pct == 37
    began = time.monotonic()
    for _ in range(50):
        held = hung()
    assert time.monotonic() - began < 0.3
    assert held.state == "stale"
    assert held.age_s >= 0.3
    assert "no answer" in str(held.answer.reason)
    assert len(probes()) == 1


def test_an_answer_that_comes_late_is_taken(hung: Ask, nvml: FakeNvml) -> None:
    [process] = probes()
    assert hung().state == "stale"
    nvml.say(gpu(0, util=5))
    assert hung.until("ok").answer.accelerators[0].utilization_pct == 5
    assert probes() == [process]


def test_a_process_that_hangs_too_long_is_replaced(
    hung: Ask, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prober, "ABANDON_S", 0.5)
    [process] = probes()
    deadline = time.monotonic() + 10
    while process.is_running():
        held = hung()
        assert held.state == "stale"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "given up" in str(held.answer.reason) or "no answer" in str(held.answer.reason)
    nvml.say(gpu(0, util=5))
    assert hung.until("ok").answer.accelerators[0].utilization_pct == 5
    assert len(probes()) == 1


def test_a_process_that_cannot_be_killed_is_followed_by_no_other(
    hung: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TEL-4: one that is stuck in the kernel, which a test can only pretend."""

    def never(process: subprocess.Popen[bytes], timeout: float | None = None) -> None:
        raise subprocess.TimeoutExpired("it", timeout or 0)

    [process] = probes()
    with monkeypatch.context() as kernel:
        kernel.setattr(prober, "ABANDON_S", 0.1)
        kernel.setattr(prober, "RETRY_S", 0.0)
        kernel.setattr(subprocess.Popen, "wait", never)
        kernel.setattr(subprocess.Popen, "poll", lambda process: None)
        for _ in range(5):
            held = hung()
            assert held.state == "stale"
        assert "stuck in the kernel" in str(held.answer.reason)
        assert str(process.pid) in str(held.answer.reason)
        assert held.answer.accelerators[0].utilization_pct == 37
        assert {it.pid for it in probes()} <= {process.pid}
    process.wait(5)  # and now the kernel lets it go
    hung()
    assert len(probes()) == 1
    assert process not in probes()


def test_a_driver_that_never_answered_is_no_cpu_host(
    nvml: FakeNvml, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prober, "FIRST_PATIENCE_S", 1.0)
    nvml.say("hang nvmlInit")
    held = ask()
    assert (held.state, held.answer.accelerators) == ("failed", ())
    assert held.answer.expects == "cuda"


def test_a_process_that_is_killed_is_made_anew(nvml: FakeNvml, ask: Ask) -> None:
    nvml.say(gpu(0))
    ask.devices()
    [process] = probes()
    process.kill()
    process.wait(5)
    assert ask.until("ok").answer.accelerators[0].id == uuid(0)


def test_the_process_holds_nothing_of_ours_and_leaves_with_us(
    nvml: FakeNvml, ask: Ask, tmp_path: Path
) -> None:
    """A driver that hangs must not keep a lock or a socket of a daemon that is gone."""
    nvml.say(gpu(0))
    with (tmp_path / "lock").open("w"):
        ask.devices()
        [process] = probes()
        held = {os.readlink(it) for it in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert not [it for it in held if it.startswith(str(tmp_path))]
    ask.close()
    assert probes() == []


NOISY = """
import os
from supervisor.devices import child, nvml
class Noisy(nvml.NvmlProbe):
    def sample(self):
        os.write(1, b"a library that prints\\n")
        print("another", flush=True)
        return super().sample()
child.VENDORS = {"nvidia": Noisy}
child.main()
"""


def test_what_a_library_prints_disturbs_nobody(nvml: FakeNvml) -> None:
    nvml.say(gpu(0))
    asking = Ask(
        nvml.env,
        command=(sys.executable, "-c", f"import sys; sys.path.append({str(ROOT)!r})\n{NOISY}"),
    )
    assert [it.id for it in asking.devices()] == [uuid(0)]
    asking.close()


def test_a_process_that_talks_nonsense_is_made_anew() -> None:
    asking = Ask({}, command=("/bin/sh", "-c", "echo nonsense; sleep 60"))
    held = asking()
    assert held.state == "failed"
    assert "nonsense" in str(held.answer.reason)
    assert probes() == []
    asking.close()


def test_a_process_that_cannot_be_started_is_a_reason(
    nvml: FakeNvml, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when an upgrade takes the interpreter away, or the host is out of processes."""
    asking = Ask({}, command=("/nowhere/python",))
    held = asking()
    assert held.state == "failed"
    assert "/nowhere/python" in str(held.answer.reason)
    asking.close()
    nvml.say(gpu(0))
    ask.devices()
    for child in probes():
        child.kill()
        child.wait(5)

    def denied(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as host:
        host.setattr(subprocess, "Popen", denied)
        held = ask.until("stale")
        assert "unavailable" in str(held.answer.reason)
    ask.until("ok")


WSL = """
import sys
from supervisor.devices import nvml, nvml_calls
nvml_calls.NVML_FOLDERS = ("/nowhere", sys.argv[1])
answer = nvml.NvmlProbe(nvml.Roots()).sample()
print([it.id for it in answer.accelerators])
"""


def test_the_library_is_found_in_folders_of_its_own(nvml: FakeNvml, nvml_library: Path) -> None:
    """As under WSL, where the loader does not look."""
    nvml.say(gpu(0))
    env = {**os.environ, "FAKE_NVML": nvml.env["FAKE_NVML"]}
    command = [sys.executable, "-c", WSL, str(nvml_library.parent)]
    told = subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert told.stdout.strip() == str([uuid(0)])


DAEMON = """
import os, psutil, signal
from supervisor.devices import prober
prober.FIRST_PATIENCE_S = 0.5
prober.Prober().ask(["nvidia"])
print(psutil.Process().children()[0].pid, flush=True)
signal.pause()
"""


def test_the_process_leaves_when_its_daemon_is_killed(nvml: FakeNvml) -> None:
    nvml.say(gpu(0), "hang nvmlDeviceGetUtilizationRates")
    command, env = [sys.executable, "-c", DAEMON], {**os.environ, **nvml.env}
    with subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        process = psutil.Process(int(daemon.stdout.readline()))
        daemon.kill()
    deadline = time.monotonic() + 5
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
