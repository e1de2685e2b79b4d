"""Recipes that run whenever the daemon does, and starts that meet a burial."""

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from supervisor.contracts.config import Config, DevicesConfig, Recipe
from supervisor.contracts.event import Adopted, Ready, Reaped, Stopped
from supervisor.instances.store import RecordStore
from tests.lifecycle.house import CARDS, POOL, A, BentClock, Home, is_running, opened, pid_of, until
from tests.lifecycle.memory import MemoryLauncher

pytestmark = pytest.mark.anyio

PLAIN = Config(ports=POOL, devices=DevicesConfig(static=CARDS))


class NextBoot(BentClock):
    """The machine was restarted since."""

    @property
    def boot_id(self) -> str:
        return "22222222-2222-2222-2222-222222222222"


def started(home: Home, **members: Any) -> Config:
    """A config whose recipe ``x`` starts by itself."""
    recipe = Recipe(
        engine="llamacpp",
        model_path=home.model,
        binary=home.stub(),
        devices=(A,),
        autostart=True,
        **members,
    )
    return replace(PLAIN, recipes={"x": recipe})


@pytest.fixture
def slow_burials(monkeypatch: pytest.MonkeyPatch) -> None:
    bury = RecordStore.bury

    async def slowly(*args: Any) -> None:
        await anyio.sleep(0.4)
        await bury(*args)

    monkeypatch.setattr(RecordStore, "bury", slowly)


async def test_a_recipe_starts_with_the_daemon(tmp_path: Path) -> None:
    async with opened(tmp_path, clean=False) as home:
        config = started(home)
    async with opened(tmp_path, config=config, clean=False) as home:
        await home.seen(Ready)
        view = home.supervisor.get("x")
    async with opened(tmp_path, config=config) as home:
        await home.seen(Adopted)
        await anyio.sleep(0.2)
        assert home.supervisor.get("x").record == view.record, "what goes on is left to go on"
        await home.stop()
        await anyio.sleep(0.2)
        assert home.of(Ready) == [], "a stop is a stop"


async def test_a_recipe_whose_last_engine_died_starts_after_the_burial(
    tmp_path: Path, slow_burials: None
) -> None:
    async with opened(tmp_path, clean=False) as home:
        config = started(home)
    async with opened(tmp_path, config=config, clean=False) as home:
        await home.seen(Ready)
        pid = pid_of(home.supervisor.get("x"))
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_running(pid))
    async with opened(tmp_path, config=config) as home:
        await home.seen(Reaped)
        await home.seen(Ready)
        await home.stop()


async def test_a_recipe_starts_after_a_reboot(tmp_path: Path, slow_burials: None) -> None:
    launcher = MemoryLauncher()
    async with opened(tmp_path, clean=False, launcher=launcher) as home:
        config = started(home)
        await home.launch(devices=(A,))
    launcher.engines[0].obey()
    async with opened(tmp_path, config=config, clock=NextBoot(), launcher=launcher) as home:
        await home.seen(Ready)
        await home.stop()


async def test_a_stop_during_the_burial_wins_over_the_start(
    tmp_path: Path, slow_burials: None
) -> None:
    async with opened(tmp_path, clean=False) as home:
        config = started(home)
    async with opened(tmp_path, config=config, clean=False) as home:
        await home.seen(Ready)
        pid = pid_of(home.supervisor.get("x"))
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_running(pid))
    async with opened(tmp_path, config=config) as home:
        await home.seen(Reaped)
        await home.stop()
        await anyio.sleep(0.3)
        assert home.of(Ready) == []


async def test_a_restart_during_a_burial_waits_for_it(tmp_path: Path, slow_burials: None) -> None:
    async with opened(tmp_path) as home:
        before = await home.launch(devices=(A,))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(home.stop)
            await home.seen(Stopped)
            await anyio.sleep(0.1)
            with anyio.fail_after(10):
                view = await home.supervisor.restart("x", nonce=None, grace_ms=None)
        assert view.state == "ready"
        assert view.record.nonce != before.record.nonce
        await home.stop()
