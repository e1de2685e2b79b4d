"""Checks of the host: devices, container engines, inference engines, the clock."""

import os
import shutil
import socket
import sys
from datetime import UTC, datetime

from supervisor.cli.doctor.facts import Facts
from supervisor.cli.doctor.finding import Finding
from supervisor.contracts.host import HostProfile

ANSWER_S = 5.0
PROGRAMS = ("vllm", "sglang", "llama-server", "mlx_lm.server", "tabbyapi")
"""Looked for on the path where no daemon tells what it would launch."""
OUT_OF_STEP = 0x0040
"""``STA_UNSYNC`` of ``adjtimex(2)``."""
_STATUS_AT = 40
"""Of ``status`` in ``struct timex`` with 64-bit longs, in bytes."""
FIRST_YEAR = 2025

# In a process of its own: a driver that hangs must not take us along. NVML_SUCCESS is 0.
_NVML = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
code, count = nvml.nvmlInit_v2(), ctypes.c_uint()
code = code or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
print(code, count.value)
"""


def package(facts: Facts) -> Finding:
    """The unrelated process manager has the same import name, and one of the two is then broken."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        other = distribution("supervisor").version
    except PackageNotFoundError:
        return Finding("ok", f"no other package has our import name in {sys.prefix}")
    fact = f"the package supervisor {other} is in {sys.prefix} as well, under our import name"
    return Finding("fail", fact, "Give each an environment of its own, and install ours anew.")


def devices(facts: Facts) -> Finding:
    if facts.snapshot is None or facts.profile is None:
        return _seen_from_here(facts)
    ill = [it for it in facts.snapshot.probes if it.state in ("failed", "stale")]
    names = [f"{it.probe}: {it.reason or it.state}" for it in ill]
    gone = [it.id for it in facts.snapshot.lost]
    found = _counted(facts.profile)
    if ill:
        advice = "Look at the driver (`nvidia-smi`, `dmesg`); after its upgrade, reboot."
        return Finding("fail", f"{found}; {'; '.join(names)}", advice)
    if gone:
        advice = "They were there before. Look at the driver's messages in `dmesg`."
        return Finding("warn", f"{found}; lost: {', '.join(gone)}", advice)
    return Finding("ok", found)


def _counted(profile: HostProfile) -> str:
    """The count is without ``cpu:0``, which is always there."""
    if not profile.device_count and profile.accelerator == "cpu":
        return "no accelerator; engines run on cpu:0"
    return f"{profile.accelerator}, {_plural(profile.device_count, 'device')} to lease"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _seen_from_here(facts: Facts) -> Finding:
    driver = (facts.root / "proc/driver/nvidia/version").exists()
    nodes = [it for it in os.listdir(facts.root / "dev") if it.removeprefix("nvidia").isdecimal()]
    other = "AMD, " if (facts.root / "dev/kfd").exists() else ""
    if not driver:
        left = "Install or load the driver: `modprobe nvidia`." if nodes else ""
        fact = f"{other or 'no '}NVIDIA driver{' is not loaded' if other or nodes else ''}"
        return Finding("warn" if nodes else "ok", fact, left)
    told = _nvml()
    code, _, count = told.partition(" ")
    if code != "0":
        advice = "Library and driver must be of one version; after an upgrade, reboot."
        return Finding("fail", f"NVIDIA's driver is loaded, and NVML says {told}", advice)
    return Finding("ok", f"NVML tells of {_plural(int(count), 'device')}")


def _nvml() -> str:
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _NVML],
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nothing within {ANSWER_S:g} s"
    return done.stdout.strip() or (done.stderr.strip().splitlines() or ["nothing"])[-1]


def containers(facts: Facts) -> Finding:
    if facts.profile is not None and facts.profile.docker:
        gpu = "with" if facts.profile.docker_gpu else "without"
        return Finding("ok", f"a container engine answers the daemon, {gpu} access to GPUs")
    answers = {path: _ping(path) for path in _sockets(facts) if os.path.exists(path)}
    if not answers:
        return Finding("skip", "no Docker or Podman; engines run as processes")
    well = [path for path, said in answers.items() if said == "OK"]
    fact = "; ".join(f"{path}: {said}" for path, said in answers.items())
    if well and facts.info is None:
        return Finding("ok", fact)
    if well:
        advice = f'It answers here, and not the daemon: `[docker] socket = "{well[0]}"`.'
    else:
        advice = "Start it, or put the daemon's user into the group of its socket."
    return Finding("warn", fact, advice)


def _sockets(facts: Facts) -> list[str]:
    places = [
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
        f"{facts.env.get('XDG_RUNTIME_DIR', '/run')}/podman/podman.sock",
    ]
    named = facts.env.get("DOCKER_HOST", "")
    if named.startswith("unix://"):
        places.insert(0, named.removeprefix("unix://"))
    return places


def _ping(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        try:
            connection.connect(path)
            connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: d\r\n\r\n")
            reply = connection.recv(64)
        except TimeoutError:
            return "does not answer"
        except OSError as error:
            return error.strerror or str(error)
    return "OK" if b" 200 " in reply else "answers, and is no container engine"


def engines(facts: Facts) -> Finding:
    if facts.engines is not None:
        found = [
            f"{it.id} {it.version or '(version unknown)'}"
            for it in facts.engines.engines
            if it.installed
        ]
        where = "where the daemon looks"
    else:
        path = facts.env.get("PATH")
        found = [at for name in PROGRAMS if (at := shutil.which(name, path=path))]
        where = "on this user's path"
    if found:
        return Finding("ok", ", ".join(found))
    advice = "Install one, name it with --binary, or launch with --runtime docker."
    return Finding("warn", f"none is installed {where}", advice)


def clock(facts: Facts) -> Finding:
    """Deadlines do not go by this clock; the times in events do, and so does TLS for downloads."""
    now = datetime.now(UTC)
    fact = now.isoformat(timespec="seconds")
    advice = "Let chrony or systemd-timesyncd keep it."
    if now.year < FIRST_YEAR:
        return Finding("fail", fact, f"The clock is not set. {advice}")
    if facts.info is not None and datetime.fromisoformat(facts.info.started_at) > now:
        return Finding("warn", f"{fact}, and the daemon was started later", advice)
    if _kernel_status() & OUT_OF_STEP:
        return Finding("warn", f"{fact}; the kernel knows of nobody who keeps it", advice)
    return Finding("ok", fact)


def _kernel_status() -> int:
    """As ``adjtimex`` has it; only asked, for ``modes`` is 0. Elsewhere than on Linux nothing."""
    if not sys.platform.startswith("linux"):
        return 0
    import ctypes

    timex = ctypes.create_string_buffer(512)
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        return 0
    return int.from_bytes(timex.raw[_STATUS_AT : _STATUS_AT + 4], sys.byteorder)
