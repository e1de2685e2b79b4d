"""Records that somebody takes away under the running daemon are put back.

An engine without its record would be lost to the next daemon, and its devices given to others. So
once in a while the daemon looks whether all of them are still there.
"""

from collections.abc import Callable, Iterable

import anyio

from supervisor.instances.durable import StoreError
from supervisor.instances.store import RecordStore
from supervisor.lifecycle.instance import Instance

ROUND_S = 10.0


async def watch_records(store: RecordStore, instances: Callable[[], Iterable[Instance]]) -> None:
    """Until cancelled."""
    while True:
        await anyio.sleep(ROUND_S)
        try:
            missing = {*await store.missing()}
        except StoreError:  # what cannot be looked at may well be there
            continue
        for instance in tuple(instances()):
            if instance.name in missing:
                await instance.put_back_record()
