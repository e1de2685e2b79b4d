"""Many at once: a name, a device and a port are each given to one launch (GPU-7, PRT-1)."""

from typing import Any

import anyio
import pytest

from supervisor.contracts.event import LaunchFailed, Ready, Spawned
from supervisor.contracts.failure import AlreadyRunning, LaunchFailure, NoCapacity
from supervisor.contracts.instance import InstanceView
from supervisor.lifecycle.errors import LaunchRefused
from tests.lifecycle.house import POOL, A, B, Home, bearers, free_port

pytestmark = pytest.mark.anyio


async def outcomes(home: Home, *launches: dict[str, Any]) -> list[InstanceView | LaunchFailure]:
    """Of launches that are all made at the same time."""
    found: list[InstanceView | LaunchFailure] = []

    async def one(name: str = "x", **members: Any) -> None:
        try:
            found.append(await home.launch(name, **members))
        except LaunchRefused as refused:
            found.append(refused.failure)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for launch in launches:
                tasks.start_soon(lambda members: one(**members), launch)
    return found


async def test_fifty_launches_of_one_name_make_one_engine(home: Home) -> None:
    binary = home.stub()
    found = await outcomes(home, *[{"binary": binary}] * 50)
    assert found.count(AlreadyRunning(name="x")) == 49
    [view] = [it for it in found if isinstance(it, InstanceView)]
    assert view.state == "ready"
    assert len(home.of(Spawned)) == len(home.of(Ready)) == 1
    assert len(list(bearers(home.nonces))) == 1
    failed = home.of(LaunchFailed)
    assert len({it.nonce for it in failed} - {view.record.nonce}) == 49
    await home.stop()


async def test_two_launches_race_for_one_card(home: Home) -> None:
    """GPU-7: exactly one has it each time, whichever, and the loser is told what it lacks."""
    binary = home.stub()
    rounds: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"devices": (A,)}, {"devices": (A,)}),
        ({"devices": (A, B)}, {"devices": (B, A)}),
        ({"devices": (A, B)}, {"devices": (B,)}),
        ({"device_count": 2}, {"devices": (B, A)}),
    ]
    for number in range(24):
        one, other = rounds[number % len(rounds)]
        pair = [
            {"name": "one", "binary": binary} | one,
            {"name": "other", "binary": binary} | other,
        ]
        found = await outcomes(home, *pair[:: 1 if number % 8 < 4 else -1])
        [winner] = [it for it in found if isinstance(it, InstanceView)]
        [loser] = [it for it in found if not isinstance(it, InstanceView)]
        assert isinstance(loser, NoCapacity)
        assert loser.free < loser.need <= 2
        assert winner.record.name in (loser.detail or "")
        held = await home.holders()
        assert held == {device: [winner.record.name] for device in winner.record.devices}
        assert len(list(bearers(home.nonces))) == 1
        await home.stop(winner.record.name)
    await home.nothing_left()


async def test_two_launches_race_for_one_explicit_port(home: Home) -> None:
    binary = home.stub()
    for _ in range(10):
        port = free_port()
        found = await outcomes(
            home,
            {"name": "one", "binary": binary, "port": port},
            {"name": "other", "binary": binary, "port": port},
        )
        [winner] = [it for it in found if isinstance(it, InstanceView)]
        [loser] = [it for it in found if not isinstance(it, InstanceView)]
        assert getattr(loser, "reason", None) == "port-taken"
        await home.stop(winner.record.name)


async def test_thirty_launches_get_thirty_ports(home: Home) -> None:
    binary = home.stub()
    names = [f"x{number}" for number in range(30)]
    found = await outcomes(home, *[{"name": name, "binary": binary} for name in names])
    views = [it for it in found if isinstance(it, InstanceView)]
    assert [it.state for it in views] == ["ready"] * 30
    ports = {it.record.port for it in views}
    assert len(ports) == 30
    assert all(POOL.first <= port <= POOL.last for port in ports)
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(home.stop, name)
    await home.nothing_left()


async def test_one_launch_does_not_wait_for_another(home: Home) -> None:
    slow = home.stub(load=120)
    await home.launch("slow", binary=slow, wait=False)
    await home.seen(Spawned, "slow")
    with anyio.fail_after(5):
        await home.launch("quick")
    assert home.supervisor.get("slow").state == "starting"
    await home.cancel("slow")
    await home.stop("quick")
