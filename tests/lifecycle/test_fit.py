"""Whether a launch will fit: told in a plan, warned of at a launch, refused where config wants."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from supervisor.contracts.config import Config, DevicesConfig, StaticDevice
from supervisor.contracts.event import Warning_
from supervisor.contracts.failure import NoCapacity
from supervisor.contracts.model import Fit
from supervisor.lifecycle import prepare
from supervisor.models.facts import Library
from tests.lifecycle.house import POOL, A, B, Home, opened
from tests.models.ggufs import F32, Made, llama

GIB = 1 << 30
CARDS = tuple(StaticDevice(id=it, accelerator="cuda", memory_bytes=2 * GIB) for it in (A, B))


def model(folder: Path, gib: float) -> str:
    """A model whose weights take so much; the file is hollow."""
    elements = int(gib * GIB) // 4
    path = folder / f"{gib}.gguf"
    Made(metadata=llama(), tensors=[("a", (elements,), F32, 0)]).write(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 4 * elements)
    return str(path)


@asynccontextmanager
async def house(
    folder: Path, fit: Literal["warn", "refuse", "off"] = "warn"
) -> AsyncIterator[Home]:
    config = Config(ports=POOL, devices=DevicesConfig(static=CARDS, fit=fit))
    async with opened(folder, config=config) as home:
        yield home


def warned(home: Home) -> list[str]:
    return [event.detail for event in home.of(Warning_) if event.code == "fit"]


async def plan(home: Home, **members: Any) -> tuple[Fit, str | None]:
    reply = await home.supervisor.plan(home.params("y", **members))
    return reply.fit, reply.refusal


async def test_a_plan_says_how_it_comes_out(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        options = ["-c", "4096", "-np", "1"]
        fit, refusal = await plan(
            home, model_path=model(tmp_path, 1), devices=(A,), extra_args=options
        )
        assert (fit.fits, refusal, fit.advisory) == (True, None, False)
        assert fit.weights_bytes == GIB
        assert fit.kv_bytes == 4 * 4096 * 2 * 16 * 2  # layers, tokens, keys and values, f16
        assert fit.free_bytes == 2 * GIB
        assert fit.need_bytes == GIB + fit.kv_bytes + (fit.overhead_bytes or 0)
        fit, _ = await plan(home, model_path=model(tmp_path, 3), devices=(A, B))
        assert (fit.fits, fit.free_bytes) == (True, 4 * GIB)


async def test_a_launch_that_will_not_fit_is_warned_of_and_goes_on(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        await home.launch(model_path=model(tmp_path, 3), devices=(A,))
        (detail,) = warned(home)
        assert "3 GiB" in detail
        assert A in detail
        story = home.story()
        assert story.index("warning") < story.index("launching")
        await home.stop()


async def test_one_that_fits_is_not(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        await home.launch(model_path=model(tmp_path, 1), devices=(A,))
        await home.stop()
        await home.launch(devices=(A,))  # nothing can be read of this one
        await home.stop()
        assert warned(home) == []


async def test_config_may_refuse_it(tmp_path: Path) -> None:
    async with house(tmp_path, "refuse") as home:
        path = model(tmp_path, 3)
        failure = await home.refused(model_path=path, devices=(A,))
        assert isinstance(failure, NoCapacity)
        assert failure.need == 1
        assert failure.free_bytes == 2 * GIB
        assert isinstance(failure.need_bytes, int)
        assert failure.need_bytes > 3 * GIB
        await home.nothing_left()
        _, refusal = await plan(home, model_path=path, devices=(A,))
        assert refusal is not None
        assert "will not fit" in refusal
        await home.launch(model_path=path, devices=(A, B))
        await home.stop()


async def test_shared_devices_are_refused_by_a_claim_alone(tmp_path: Path) -> None:
    async with house(tmp_path, "refuse") as home:
        path = model(tmp_path, 3)
        await home.launch(model_path=path, devices=(A,), exclusive=False)
        assert len(warned(home)) == 1
        await home.stop()
        claimed: dict[str, Any] = {"devices": (A,), "exclusive": False, "memory_bytes": GIB}
        failure = await home.refused(model_path=path, **claimed)
        assert isinstance(failure, NoCapacity)
        assert failure.free_bytes == GIB
        small = model(tmp_path, 0.25)
        await home.launch("a", model_path=small, **claimed)
        fit, _ = await plan(home, model_path=small, devices=(A,), exclusive=False)
        assert (fit.free_bytes, fit.advisory) == (GIB, True)  # what the other one did not claim
        await home.stop("a")


async def test_off_is_off(tmp_path: Path) -> None:
    async with house(tmp_path, "off") as home:
        await home.launch(model_path=model(tmp_path, 3), devices=(A,))
        await home.stop()
        assert warned(home) == []


async def test_the_hosts_memory(home: Home, tmp_path: Path) -> None:
    """``cpu:0``: what the kernel says is available, and only advice."""
    fit, refusal = await plan(home, model_path=model(tmp_path, 1000))
    assert (fit.fits, fit.advisory, refusal) == (False, True, None)
    snapshot = await home.supervisor.snapshot()
    available = snapshot.host.memory_available_bytes
    assert fit.free_bytes is not None
    assert abs(fit.free_bytes - available) < available / 4


async def test_a_model_that_cannot_be_read_in_time_is_not_known(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung mount holds up one thread, and neither the launch nor the loop."""
    go_on = threading.Event()
    monkeypatch.setattr(prepare, "FIT_S", 0.2)
    monkeypatch.setattr(Library, "facts", lambda *_: go_on.wait(30))
    try:
        fit, refusal = await plan(home)
        assert (fit.fits, refusal) == (None, None)
        assert "took longer" in fit.why
        await home.launch()
        await home.stop()
        assert warned(home) == []
    finally:
        go_on.set()
