"""The bus: one order, one encoding, and a ring that a slow reader falls out of."""

import anyio
import anyio.lowlevel
import msgspec
import pytest

from supervisor.bus import Bus, CursorExpired, Published
from supervisor.contracts.event import Cursor, DeviceFound, Ready

pytestmark = pytest.mark.anyio


def make_bus(ring: int = 8) -> Bus:
    return Bus(epoch="e1", last_seq=41, now=lambda: "2026-01-02T03:04:05.000Z", ring=ring)


async def test_an_event_is_one_flat_object_numbered_after_the_last() -> None:
    bus = make_bus()
    reader = bus.subscribe()
    bus.publish(Ready(instance="a", nonce="n", port=8080, waited_ms=12))
    (published,) = await reader.next()
    assert msgspec.json.decode(published.encoded) == {
        "seq": 42,
        "epoch": "e1",
        "at": "2026-01-02T03:04:05.000Z",
        "node": "self",
        "kind": "ready",
        "instance": "a",
        "nonce": "n",
        "port": 8080,
        "waitedMs": 12,
    }


async def test_every_reader_sees_the_same_order() -> None:
    bus = make_bus(ring=1_000)
    readers = [bus.subscribe() for _ in range(20)]
    seen: list[list[int]] = [[] for _ in readers]

    async def read(index: int) -> None:
        while len(seen[index]) < 300:
            seen[index] += [it.stamp.seq for it in await readers[index].next(limit=7)]

    async with anyio.create_task_group() as group:
        for index in range(len(readers)):
            group.start_soon(read, index)
        for number in range(300):
            bus.publish(DeviceFound(device=f"d{number}"))
            if number % 10 == 0:
                await anyio.lowlevel.checkpoint()
    assert all(numbers == list(range(42, 342)) for numbers in seen)


async def test_a_reader_that_falls_out_of_the_ring_is_told_a_valid_place() -> None:
    bus = make_bus(ring=4)
    slow = bus.subscribe()
    for number in range(5):
        bus.publish(DeviceFound(device=f"d{number}"))
    with pytest.raises(CursorExpired) as caught:
        await slow.next()
    assert caught.value.valid == Cursor(epoch="e1", seq=46)
    assert bus.subscribe(caught.value.valid).cursor == Cursor(epoch="e1", seq=46)


@pytest.mark.parametrize(
    "cursor",
    [
        Cursor(epoch="other", seq=44),
        Cursor(epoch="e1", seq=40),
        Cursor(epoch="e1", seq=99),
    ],
    ids=["another epoch", "before the ring", "in the future"],
)
async def test_a_place_that_is_not_in_the_ring_is_refused(cursor: Cursor) -> None:
    bus = make_bus(ring=4)
    for number in range(4):
        bus.publish(DeviceFound(device=f"d{number}"))
    with pytest.raises(CursorExpired):
        bus.subscribe(cursor)


@pytest.mark.parametrize("behind", range(9))
async def test_reading_after_any_place_gives_exactly_the_rest(behind: int) -> None:
    bus = make_bus(ring=8)
    for number in range(8):
        bus.publish(DeviceFound(device=f"d{number}"))
    reader = bus.subscribe(Cursor(epoch="e1", seq=49 - behind))
    bus.publish(DeviceFound(device="last"))
    got: list[int] = []
    try:
        while not got or got[-1] != 50:
            got += [it.stamp.seq for it in await reader.next(limit=3)]
    except CursorExpired:
        assert behind == 8, "only the oldest place was pushed out of the ring"
        return
    assert got == list(range(50 - behind, 51))


async def test_with_a_recorder_readers_see_only_what_was_delivered() -> None:
    bus = make_bus()
    held: list[Published] = []
    bus.attach(held.append)
    reader = bus.subscribe()
    bus.publish(DeviceFound(device="d"))
    with anyio.move_on_after(0.02):
        await reader.next()
    assert bus.cursor.seq == 41
    bus.deliver(tuple(held))
    (published,) = await reader.next()
    assert published.stamp.seq == 42
