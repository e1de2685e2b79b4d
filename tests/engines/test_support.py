"""Where each engine runs: the whole truth table, in golden files for a person to read."""

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from supervisor.contracts.engine import ENGINE_IDS, EngineId, EngineSupport
from supervisor.contracts.host import Accelerator, HostArch, HostPlatform, HostProfile
from supervisor.engines.registry import ENGINES
from tests.engines.requests import host

GOLDEN = Path(__file__).parents[2] / "golden" / "supports"

DOCKER = {"none": (False, False), "yes": (True, False), "gpu": (True, True)}


def hosts() -> Iterator[tuple[tuple[str, ...], HostProfile]]:
    kinds = (get_args(HostPlatform), get_args(HostArch), get_args(Accelerator))
    for platform, arch, accelerator, wsl, docker in product(*kinds, (False, True), DOCKER):
        if wsl and platform != "linux":
            continue  # there is no such thing
        answered, reaches = DOCKER[docker]
        profile = host(
            platform=platform,
            arch=arch,
            accelerator=accelerator,
            wsl=wsl,
            docker=answered,
            dockerGpu=reaches,
        )
        yield (platform, arch, accelerator, "wsl" if wsl else "-", docker), profile


def line(facts: tuple[str, ...], support: EngineSupport) -> str:
    head = f"{facts[0]:7} {facts[1]:6} {facts[2]:6} {facts[3]:4} {facts[4]:5}"
    if not support.ok:
        return f"{head}no: {support.reason}"
    runtimes = " and ".join(support.runtimes or ())
    without = "".join(f"; no {way}: {why}" for way, why in (support.without or {}).items())
    return f"{head}{runtimes}, needs {support.needs}{without}"


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_the_truth_table(engine: EngineId) -> None:
    head = "platform arch accelerator wsl docker (none, yes: answers, gpu: reaches the GPU)\n"
    text = head + "".join(f"{line(facts, ENGINES[engine].supports(p))}\n" for facts, p in hosts())
    path = GOLDEN / f"{engine}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, "review the change, then: make golden"


@pytest.mark.parametrize("engine", ENGINE_IDS)
def test_every_refusal_names_the_fact_that_decides(engine: EngineId) -> None:
    for (platform, arch, accelerator, _, _), profile in hosts():
        support = ENGINES[engine].supports(profile)
        if not support.ok:
            facts = (
                f"platform is {platform}",
                f"architecture is {arch}",
                f"accelerator is {accelerator}",
            )
            assert any(fact in str(support.reason) for fact in facts)


@pytest.mark.parametrize(
    ("engine", "facts", "runtimes"),
    [
        ("vllm", {}, ("process", "docker")),
        ("vllm", {"dockerGpu": False}, ("process",)),
        ("vllm", {"accelerator": "rocm"}, ("process", "docker")),
        ("vllm", {"accelerator": "xpu"}, ("process", "docker")),
        ("vllm", {"accelerator": "cpu", "dockerGpu": False}, ("process", "docker")),
        ("vllm", {"accelerator": "rocm", "arch": "arm64"}, None),
        ("vllm", {"platform": "darwin", "accelerator": "metal"}, None),
        ("sglang", {"wsl": True}, ("process", "docker")),
        ("sglang", {"accelerator": "cpu", "arch": "arm64"}, None),
        ("mlx", {"platform": "darwin", "accelerator": "metal", "arch": "arm64"}, ("process",)),
        ("mlx", {"platform": "darwin", "accelerator": "metal"}, None),
        ("mlx", {}, ("process",)),
        ("mlx", {"accelerator": "cpu"}, ("process",)),
        ("mlx", {"accelerator": "rocm"}, None),
        ("exllamav3", {}, ("process", "docker")),
        ("exllamav3", {"accelerator": "rocm"}, None),
        ("exllamav3", {"arch": "arm64"}, None),
        ("llamacpp", {}, ("process", "docker")),
        ("llamacpp", {"docker": False}, ("process",)),
        ("llamacpp", {"accelerator": "rocm", "arch": "arm64"}, ("process", "docker")),
        ("llamacpp", {"platform": "darwin", "accelerator": "metal"}, ("process",)),
        ("llamacpp", {"platform": "win32"}, None),
    ],
)
def test_what_the_engines_ship_today(
    engine: EngineId, facts: dict[str, object], runtimes: tuple[str, ...] | None
) -> None:
    support = ENGINES[engine].supports(host(**facts))
    assert (support.runtimes or None) == runtimes
