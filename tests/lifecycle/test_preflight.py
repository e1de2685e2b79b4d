"""What a launch is refused for before anything is started: each with its reason, and nothing left.

Cases STR-5 (b), (c) and (e) of a supervisor's life, and the models that are not what they seem.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.contracts.event import Launching
from supervisor.contracts.failure import SpawnFailed, SpawnReason
from supervisor.contracts.instance import LaunchParams
from supervisor.lifecycle.modelcheck import find_model
from supervisor.lifecycle.order import resolve
from supervisor.lifecycle.preflight import Problem
from tests.lifecycle.house import Home
from tests.models import shards
from tests.models.ggufs import F32, Made, llama
from tests.parts.real_llama import require


async def refused(home: Home, reason: SpawnReason, **members: Any) -> str:
    """The detail of a refusal for ``reason``, which leaves nothing."""
    failure = await home.refused(**members)
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == reason
    await home.nothing_left()
    return failure.detail


def script(path: Path, first: str, mode: int = 0o755) -> str:
    path.write_bytes(first.encode() + b"\nexit 0\n")
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("#!/nowhere/python3", "a script for /nowhere/python3, which is not there"),
        ("#!/etc/passwd", "a script for /etc/passwd, which cannot be executed"),
        ("#!/bin/sh\r", "a script for /bin/sh, which is not there (its first line ends as on"),
        ("#!/usr/bin/env no-such-python -u", "a script for"),
        ("#!/usr/bin/env no-such-python", "a script for no-such-python, which is not on its PATH"),
    ],
)
async def test_a_script_whose_interpreter_is_missing(
    home: Home, first: str, said: str, tmp_path: Path
) -> None:
    binary = script(tmp_path / "engine", first)
    if first.endswith("-u"):  # env is given one word: the engine's own exit tells
        await home.refused(binary=binary)
        return
    assert said in await refused(home, "not-executable", binary=binary)


@pytest.mark.parametrize("port", [{}, {"port": 12_345}], ids=["pool", "explicit"])
async def test_a_bind_host_that_is_not_ours_is_named(home: Home, port: dict[str, Any]) -> None:
    """No port is taken there; there is no such place here."""
    failure = await home.refused(extra_args=("--host", "192.0.2.9"), **port)
    assert isinstance(failure, SpawnFailed)
    assert "192.0.2.9 is no address of this host" in failure.detail
    assert not failure.reason
    await home.nothing_left()


async def test_a_program_that_is_missing_or_cannot_run(home: Home, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    assert absent in await refused(home, "binary-missing", binary=absent)
    assert "PATH" in await refused(home, "binary-missing", binary="no-such-engine")
    plain = script(tmp_path / "plain", "#!/bin/sh", mode=0o644)
    assert plain in await refused(home, "not-executable", binary=plain)
    assert await refused(home, "not-executable", binary=str(tmp_path))


# ── models ───────────────────────────────────────────────────────────────────


def split(folder: Path, present: tuple[int, ...] = (1, 2, 3)) -> list[Path]:
    parts = [folder / f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    for number in present:
        made = Made(metadata=llama(), tensors=[("a", (8,), F32, 0)], data=bytes(32))
        made.write(parts[number - 1])
    return parts


async def test_any_part_of_a_split_model_stands_for_the_first(home: Home, tmp_path: Path) -> None:
    parts = split(tmp_path)
    await home.launch(model_path=str(parts[1]))
    argv = home.of(Launching)[0].plan.argv
    assert str(parts[0]) in argv
    assert str(parts[1]) not in argv
    await home.stop()
    reply = await home.supervisor.plan(home.params("x", model_path=str(parts[2])))
    assert str(parts[0]) in reply.plan.argv


async def test_the_part_that_is_missing_is_named(home: Home, tmp_path: Path) -> None:
    parts = split(tmp_path, present=(1, 2))
    for given in parts[:2]:
        assert str(parts[2]) in await refused(home, "model-missing", model_path=str(given))


async def test_names_of_links_are_kept(home: Home, tmp_path: Path) -> None:
    """As in a Hugging Face cache: names are links to blobs that are named by their content."""
    blobs, names = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    names.mkdir()
    parts = split(blobs)
    for number, part in enumerate(parts):
        blob = part.rename(blobs / f"{number:064x}")
        (names / part.name).symlink_to(blob)
    await home.launch(model_path=str(names / parts[1].name))
    assert str(names / parts[0].name) in home.of(Launching)[0].plan.argv
    await home.stop()


async def test_a_link_that_leads_nowhere(home: Home, tmp_path: Path) -> None:
    link = tmp_path / "m.gguf"
    link.symlink_to("../blobs/gone")
    detail = await refused(home, "model-missing", model_path=str(link))
    assert "a link to ../blobs/gone" in detail


@pytest.mark.parametrize("key", ["general.architecture", "general.type"])
async def test_a_projector_is_no_model(home: Home, key: str, tmp_path: Path) -> None:
    value = "clip" if key.endswith("architecture") else "mmproj"
    path = Made(metadata=llama() | {key: value}).write(tmp_path / "mm.gguf")
    assert "--mmproj" in await refused(home, "model-missing", model_path=str(path))


async def test_a_directory_for_llama_server(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    assert "is a directory" in await refused(home, "model-missing", model_path=str(folder))
    for name in ("mmproj-f16.gguf", "model-q4.gguf"):
        (folder / name).touch()
    detail = await refused(home, "model-missing", model_path=str(folder))
    assert "it holds model-q4.gguf" in detail


def test_what_engines_that_read_directories_refuse(tmp_path: Path) -> None:
    def look(engine: str, path: Path, **members: Any) -> str:
        params = LaunchParams(name="x", engine=engine, model_path=str(path), **members)  # type: ignore[arg-type]
        return find_model(resolve(params, {}))

    def refusal(engine: str, path: Path) -> str:
        with pytest.raises(Problem) as caught:
            look(engine, path)
        failure = caught.value.failure
        assert isinstance(failure, SpawnFailed)
        assert failure.reason == "model-missing"
        return failure.detail

    gguf = Made(metadata=llama()).write(tmp_path / "m.gguf")
    weights = tmp_path / "model.safetensors"
    weights.touch()
    empty = tmp_path / "empty"
    empty.mkdir()
    good = tmp_path / "good"
    good.mkdir()
    (good / "config.json").write_text("{}")
    for engine in ("vllm", "sglang", "mlx", "exllamav3"):
        assert "llamacpp serves GGUF" in refusal(engine, gguf)
        assert "is a file" in refusal(engine, weights)
        assert "config.json" in refusal(engine, empty)
        assert look(engine, good) == str(good)
    assert look("vllm", gguf, extra_args=("--load-format", "gguf")) == str(gguf)
    assert look("llamacpp", empty, command=("/bin/true",)) == str(empty)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_model_that_may_not_be_read(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.touch(mode=0)
    await refused(home, "denied", model_path=str(path))


async def test_a_program_that_may_not_be_looked_at(home: Home, tmp_path: Path) -> None:
    """It is there: "no program" would send people looking for it."""
    closed = tmp_path / "closed"
    closed.mkdir()
    program = closed / "llama-server"
    program.touch(0o755)

    def refuse(path: Any, *args: Any, **named: Any) -> Any:
        if str(path).startswith(str(closed)):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **named)

    real = os.stat
    with pytest.MonkeyPatch.context() as patch:  # root may look everywhere
        patch.setattr(os, "stat", refuse)
        failure = await home.refused(binary=str(program))
    assert isinstance(failure, SpawnFailed)
    assert failure.reason == "denied"
    assert f"may not look at the program {program}: Permission denied" in failure.detail


async def test_a_fifo_in_place_of_a_model_hangs_nobody(home: Home, tmp_path: Path) -> None:
    """The engine gets it, and has its own way to fail; looking at it must not wait for a writer."""
    fifo = tmp_path / "m.gguf"
    os.mkfifo(fifo)
    await home.launch(model_path=str(fifo))
    await home.stop()


async def test_a_real_server_gets_a_split_model_by_any_of_its_parts(
    home: Home, tmp_path: Path
) -> None:
    """llama-server itself refuses to start from the second: it wants the first (measured)."""
    server = require("genuine-llama-server")
    _, second = shards.write(tmp_path)
    view = await home.launch(model_path=str(second), binary=str(server))
    assert view.state == "ready"
    await home.stop()
