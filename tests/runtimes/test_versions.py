"""Versions from what installers leave behind, and never by running anything."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from supervisor.contracts.engine import EngineId
from supervisor.runtimes import versions
from supervisor.runtimes.scripts import interpreter_words
from supervisor.runtimes.versions import engine_version
from tests.parts.real_llama import mlx_server, shim_server


def venv(path: Path, name: str, number: str, *, python: str = "python3.12") -> Path:
    """As pip lays a venv out: a console script, and the metadata of its package."""
    packages = path / "lib" / python / "site-packages"
    info = packages / f"{name}-{number}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {number}\n\n")
    (path / "bin").mkdir()
    program = path / "bin" / "engine"
    program.write_text(f"#!{path}/bin/python\nraise SystemExit('nobody may run this')\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("engine", "name", "number"),
    [
        ("vllm", "vllm", "0.24.1+cu130"),
        ("sglang", "sglang", "0.5.23"),
        ("mlx", "mlx_lm", "0.32.2"),
        ("mlx", "MLX-LM", "0.32.2"),
        ("exllamav3", "exllamav3", "0.0.9"),
    ],
)
def test_a_venv(engine: EngineId, name: str, number: str, tmp_path: Path) -> None:
    program = venv(tmp_path / "v", name, number)
    assert engine_version(engine, str(program)) == number


def test_a_link_into_a_venv_as_pipx_makes(tmp_path: Path) -> None:
    program = venv(tmp_path / "v", "vllm", "0.33.0")
    link = tmp_path / "bin" / "vllm"
    link.parent.mkdir()
    link.symlink_to(program)
    assert engine_version("vllm", str(link)) == "0.33.0"


def test_a_script_elsewhere_that_names_the_venvs_python(tmp_path: Path) -> None:
    venv(tmp_path / "v", "vllm", "0.33.0")
    script = tmp_path / "serve"
    script.write_text(f"#!{tmp_path}/v/bin/python3 -I\n")
    assert engine_version("vllm", str(script)) == "0.33.0"


def test_what_does_not_tell(tmp_path: Path) -> None:
    program = venv(tmp_path / "v", "vllm_tools", "1.0")
    assert engine_version("vllm", str(program)) is None
    assert engine_version("vllm", "/bin/true") is None
    assert engine_version("vllm", str(tmp_path / "absent" / "bin" / "vllm")) is None
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert engine_version("vllm", str(fifo)) is None


def test_the_name_of_the_folder_where_the_metadata_is_gone(tmp_path: Path) -> None:
    program = venv(tmp_path / "v", "vllm", "0.33.0")
    metadata = next(tmp_path.glob("v/lib/*/site-packages/*/METADATA"))
    metadata.unlink()
    os.mkfifo(metadata)
    assert engine_version("vllm", str(program)) == "0.33.0"


def test_our_own_python_as_a_real_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "DISTRIBUTIONS", {"vllm": ("anyio",)})
    python = os.path.join(sys.prefix, "bin", "python")
    assert engine_version("vllm", python) == version("anyio")


def test_the_real_runtime() -> None:
    """The wheel's version is part of the runtime's own name."""
    server = shim_server()
    assert engine_version("llamacpp", str(server)) == server.parent.name.removeprefix("llamacpp-")


def test_the_real_mlx() -> None:
    server = mlx_server()
    assert engine_version("mlx", str(server)) == server.parent.name.removeprefix("mlx-")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#!/bin/sh\n", ["/bin/sh"]),
        ("#! /usr/bin/env  python3 -u\n", ["/usr/bin/env", "python3 -u"]),
        ("#!/bin/sh\r\n", ["/bin/sh\r"]),
        ("#!\n", []),
        ("no script", None),
        ("", None),
    ],
)
def test_first_lines(line: str, words: list[str] | None, tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_bytes(line.encode())
    assert interpreter_words(str(path)) == words
