"""GPU-2: a short id is made whole, or refused as ambiguous, before anything is spawned."""

from pathlib import Path

import pytest

from supervisor.contracts.config import Config, DevicesConfig, StaticDevice
from supervisor.contracts.event import Spawned
from supervisor.contracts.failure import NoCapacity
from supervisor.lifecycle.errors import InvalidLaunch
from tests.lifecycle.house import POOL, opened

pytestmark = pytest.mark.anyio

FIRST, SECOND, OTHER = "GPU-ab11-0001", "GPU-ab22-0002", "GPU-cd33-0003"
CARDS = tuple(
    StaticDevice(id=name, accelerator="cuda", memory_bytes=1 << 30)
    for name in (FIRST, SECOND, OTHER)
)
CONFIG = Config(ports=POOL, devices=DevicesConfig(static=CARDS))


async def test_short_ids(tmp_path: Path) -> None:
    async with opened(tmp_path, config=CONFIG) as home:
        with pytest.raises(InvalidLaunch, match=f"ambiguous: {FIRST}, {SECOND}"):
            await home.launch(devices=("GPU-ab",))
        with pytest.raises(InvalidLaunch, match="twice"):
            await home.launch(devices=("GPU-cd", OTHER))
        for absent in ("GPU-ee", "GPU"):
            assert isinstance(await home.refused(devices=(absent,)), NoCapacity)
        assert not any(isinstance(it.event, Spawned) for it in home.events)
        view = await home.launch(devices=("GPU-ab2", "GPU-cd33"))
        assert view.record.devices == (SECOND, OTHER)
        await home.stop()
