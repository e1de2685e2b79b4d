"""What an earlier daemon left: its records taken up, what is unreadable or nobody's held apart."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import anyio
import anyio.to_thread
from msgspec import UNSET

from supervisor import __version__
from supervisor.contracts.event import SupervisorStarted, Warning_
from supervisor.contracts.instance import DockerHandle, InstanceRecord, Tombstone
from supervisor.engines.registry import engine_spec
from supervisor.launchers.base import CannotTellError, Launcher, Stray
from supervisor.lifecycle.booking import BookingDesk
from supervisor.lifecycle.house import House
from supervisor.lifecycle.instance import Instance
from supervisor.lifecycle.pins import UNTOUCHABLE, is_pin
from supervisor.lifecycle.quarantine import Quarantine, shown
from supervisor.lifecycle.roster import Roster
from supervisor.lifecycle.told import History

UNASKED_S = 5.0
"""Between two questions to a launcher whose other side does not answer."""
FIRST_LOOK_S = 5.0
"""How long the daemon's start waits to learn who of its engines lives."""


async def take_up(
    house: House,
    roster: Roster,
    quarantine: Quarantine,
    desk: BookingDesk,
    ended: Callable[[Instance, Tombstone], None],
) -> tuple[Instance, ...]:
    """Enter everybody whom the state directory has; return those whose task is to run."""
    loaded = await anyio.to_thread.run_sync(house.store.load)
    roster.recall(loaded.tombstones.values())
    house.publish(
        SupervisorStarted(
            version=__version__,
            boot_id=house.clock.boot_id,
            supervisor_id=house.supervisor_id,
            found=len(loaded.records),
        )
    )
    for path in loaded.moved:
        detail = f"what lay in the place of a folder of ours is now {path}"
        house.publish(Warning_(code="moved-aside", detail=detail))
    for path in loaded.pruned:
        detail = f"{path} could not be read for a month, and was removed; it held nothing"
        house.publish(Warning_(code="tombstone-pruned", detail=shown(detail)))
    quarantine.unasked = list(house.launchers.values())
    quarantine.admit(loaded.quarantined, await _strays(quarantine.unasked, loaded.records))
    with anyio.move_on_after(FIRST_LOOK_S):
        await quarantine.look()
    said = History(house.bus.history)
    living: list[Instance] = []
    for name, record in loaded.records.items():
        untouchable = _untouchable(house, record, newer=name in loaded.read_only)
        instance = roster.enter(
            Instance(
                house,
                record,
                engine_spec(record.engine),
                ended,
                prepare=desk.again,
                told=said.of(record),
                untouchable=untouchable,
            )
        )
        if untouchable is None:
            living.append(instance)
        elif not is_pin(record):
            house.publish(Warning_(instance=name, code="record-newer", detail=untouchable))
    return tuple(living)


async def all_known(roster: Roster) -> None:
    """Until it is known of every instance whether its engine lives, but not for ever."""
    with anyio.move_on_after(FIRST_LOOK_S):
        for instance in roster.here():
            await instance.until(lambda it: it.known)


async def watch_quarantine(quarantine: Quarantine, roster: Roster) -> None:
    """Look after the cases; ask again who could not tell of strays when the daemon started.

    Side by side, for one who never answers must not keep what others can tell of.
    """
    async with anyio.create_task_group() as both:
        both.start_soon(quarantine.watch)
        while quarantine.unasked:
            await anyio.sleep(UNASKED_S)
            quarantine.add(await _strays(quarantine.unasked, roster.records()))
            await quarantine.look()


async def _strays(unasked: list[Launcher], records: Mapping[str, InstanceRecord]) -> list[Stray]:
    """Who lives without a record. Whoever could tell is taken off the list."""
    told = (it.supervision.cgroup for it in records.values() if it.supervision)
    known = {cgroup for cgroup in told if cgroup}
    refs = (it.ref for it in records.values())
    known |= {ref.container for ref in refs if isinstance(ref, DockerHandle)}
    found: list[Stray] = []
    for launcher in tuple(unasked):
        with suppress(CannotTellError):
            found += await launcher.strays(known)
            unasked.remove(launcher)
    return found


def _untouchable(house: House, record: InstanceRecord, *, newer: bool) -> str | None:
    """Why a record is kept as it is, with its lease, and nobody acts on it."""
    if newer:
        return "a newer version wrote this record"
    if is_pin(record):
        return UNTOUCHABLE
    if record.supervision is UNSET:
        return "the record does not say how it was launched"
    if record.ref is not None and house.launcher_of(record.ref) is None:
        return f"this daemon has no launcher for a {record.runtime} handle"
    return None
