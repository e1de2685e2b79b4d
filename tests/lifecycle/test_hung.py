"""What hangs in a file system or in a driver costs a bounded number of threads, and no more."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.contracts.device import DeviceProcess
from supervisor.contracts.failure import NoCapacity, SpawnFailed
from supervisor.devices import inventory
from supervisor.devices.cpu import CpuProbe
from supervisor.devices.probe import ProbeAnswer
from supervisor.devices.static import StaticProbe
from supervisor.launchers.process import census, identity
from supervisor.launchers.process.census import CensusTaker, ScanFailedError
from supervisor.lifecycle import prepare, strangers
from supervisor.lifecycle.errors import Unavailable
from supervisor.lifecycle.house import LOOKERS
from supervisor.patience import Patience
from tests.lifecycle.house import CARDS, A, Home, opened, until
from tests.lifecycle.test_strangers import Driver, host

pytestmark = pytest.mark.anyio


class Hang:
    """A call that does not come back before the test lets it."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self._over = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, *_: Any, **__: Any) -> Any:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self._over.wait(30)
        with self._lock:
            self.inside -= 1
        raise OSError("it was let go")

    def let_go(self) -> None:
        self._over.set()
        deadline = time.monotonic() + 10
        while self.inside and time.monotonic() < deadline:
            time.sleep(0.001)


@pytest.fixture
def hang() -> Iterator[Hang]:
    made = Hang()
    yield made
    made.let_go()


async def test_models_on_a_mount_that_hangs(
    home: Home, hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each launch is refused in time, and the one more than there are threads at once."""
    monkeypatch.setattr(prepare, "find_model", hang)
    monkeypatch.setattr(prepare, "LOOK_S", 0.3)
    binary = home.stub()
    failures = []

    async def launch(name: str) -> None:
        failures.append(await home.refused(name, binary=binary))

    for batch in range(2):
        async with anyio.create_task_group() as launches:
            for number in range(LOOKERS):
                launches.start_soon(launch, f"e{batch}-{number}")
    assert hang.most <= LOOKERS
    assert len(failures) == 2 * LOOKERS
    for failure in failures:
        assert isinstance(failure, SpawnFailed)
        assert "does a file system hang?" in failure.detail
    hang.let_go()
    monkeypatch.undo()
    await home.launch()
    await home.stop()


async def test_strangers_stuck_in_a_driver(
    hang: Hang, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They hold up no look at a model: launches go on while nobody can be told a stranger."""
    monkeypatch.setattr(strangers, "_read", hang)
    monkeypatch.setattr(strangers, "LOOK_S", 0.02)
    driver = Driver()
    driver.on[A] = [DeviceProcess(pid=4_000_000)]
    async with host(tmp_path, driver) as home:
        for _ in range(LOOKERS + 4):
            await home.supervisor._strangers._sort({A: tuple(driver.on[A])})
        assert hang.most == LOOKERS
        await home.launch(devices=(A,))
        await home.stop()
        hang.let_go()
        monkeypatch.undo()


async def test_a_census_leaves_out_who_hangs_and_counts_their_threads(
    hang: Hang, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(census, "read_nonce", hang)
    monkeypatch.setattr(census, "SCAN_DEADLINE_S", 0.02)
    monkeypatch.setattr(census, "HUNG_MOST", 6)
    taker = CensusTaker()
    for _ in range(5):
        with pytest.raises(ScanFailedError):
            await taker.take()
    assert hang.most == taker.patience.hung == 6
    before = time.monotonic()
    with pytest.raises(ScanFailedError):
        await taker.take()
    assert time.monotonic() - before < 0.02, "where no thread is left nobody waits"


async def test_identities_that_cannot_be_read(hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "read_nonce", hang)
    monkeypatch.setattr(identity, "NONCE_DEADLINE_S", 0.01)
    monkeypatch.setattr(identity, "_nonces", Patience("reading marks", 3))
    for _ in range(8):
        assert await identity._patient_nonce(1) is None
    assert hang.most == 3


class Disk:
    """A host whose look hangs when it is told to, as in a file system that is stuck."""

    def __init__(self) -> None:
        self.hang: Hang | None = None

    def sample(self) -> ProbeAnswer:
        return self.hang() if self.hang else StaticProbe(CARDS).sample()


async def test_a_look_at_the_host_that_hangs_keeps_no_launch_waiting(
    hang: Hang, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With what is known it goes on; where nothing is, it fails in its own typed way."""
    monkeypatch.setattr(inventory, "ROUND_S", 0.2)
    monkeypatch.setattr(inventory, "FRESH_NS", 0)
    disk = Disk()
    async with opened(tmp_path, probes=(disk, CpuProbe("a processor"))) as home:
        await home.supervisor.snapshot()
        disk.hang = hang
        await home.launch(devices=(A,))
        assert isinstance(await home.refused("y", devices=(A,)), NoCapacity)
        assert (await home.supervisor.snapshot()).probes[-1].state == "stale"
        await home.stop()
        disk.hang = None
        hang.let_go()


async def test_a_look_at_the_host_that_never_came_back(
    hang: Hang, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(inventory, "FIRST_ROUND_S", 0.1)
    monkeypatch.setattr(inventory, "FRESH_NS", 0)
    disk = Disk()
    disk.hang = hang
    async with opened(tmp_path, probes=(disk, CpuProbe("a processor"))) as home:
        failure = await home.refused(devices=(A,))
        assert isinstance(failure, NoCapacity)
        assert "looking at this host hangs" in str(failure.detail)
        for ask in (home.supervisor.snapshot, home.supervisor.leases, home.supervisor.profile):
            with pytest.raises(Unavailable, match="looking at this host hangs"):
                await ask()
        disk.hang = None
        hang.let_go()
        await until(lambda: home.house.inventory.latest is not None)
        await home.again(devices=(A,))
