"""A library that NVIDIA's real binding takes for NVML, and a text file that says what it sees."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
MIB = 1 << 20


class FakeNvml:
    """One fake host: ``say`` writes what its GPUs are from now on."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._file = folder / "gpus.txt"
        self.env = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": str(self._file)}
        self.say("")

    def say(self, *lines: str) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text("".join(f"{line}\n" for line in lines))
        beside.replace(self._file)


def build(folder: Path) -> Path:
    """Compile it; skips (or fails where parts are required) on a host without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        reason = "no C compiler for the fake NVML: apt-get install gcc libc6-dev"
        if os.environ.get("ENGINE_SUPERVISOR_REQUIRE_PARTS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    library = folder / "libnvidia-ml.so.1"
    flags = ["-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE)], check=True, timeout=60)
    return library


def uuid(at: int) -> str:
    """As NVML writes them, and none of a real card's."""
    return f"GPU-{at:08x}-0000-4000-8000-{at:012x}"


def gpu(at: int, **facts: str | int) -> str:
    """A line for the ``at``-th of many equal cards, which sit on buses of their own."""
    usual: dict[str, str | int] = {
        "uuid": uuid(at),
        "name": "NVIDIA_H200",
        "pci": f"00000000:{0x1B + at:02X}:00.0",
        "total": 143_771,
        "minor": at,
        "mig": 0,
    }
    return "gpu " + " ".join(f"{key}={value}" for key, value in (usual | facts).items())
