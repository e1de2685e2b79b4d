"""The slow rounds: once in a while everybody's tree is looked at, all at the same moment.

One task for all, because one look at the host's processes answers for every instance at once; two
hundred tasks with clocks of their own would take two hundred looks.
"""

from collections.abc import Callable, Iterable

import anyio

from supervisor.contracts.event import MemberLost, MemberProcess
from supervisor.contracts.instance import HandleReference
from supervisor.launchers.base import CannotTellError
from supervisor.lifecycle.instance import Instance

ROUND_S = 10.0
SETTLED_ROUNDS = 2
"""A member seen this often is part of the engine; one seen less was a helper that came and went."""
MOST_EVENTS = 16
"""Of one instance and round: an engine that loses a hundred workers is told about, not listed."""


class MemberWatch:
    """What one instance's tree looked like, to notice what is missing from it.

    A tree is known from here to the launcher too: whoever was seen once, before it left its session
    or wrote over its environment, stays a member for the launcher.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[MemberProcess, int]] = {}

    def compare(self, members: Iterable[MemberProcess]) -> tuple[MemberProcess, ...]:
        """Take the newest look, and say which settled members are gone."""
        now = {member.pid: member for member in members}
        lost = tuple(
            member
            for pid, (member, rounds) in self._seen.items()
            if pid not in now and rounds >= SETTLED_ROUNDS
        )
        self._seen = {
            pid: (member, self._seen.get(pid, (member, 0))[1] + 1) for pid, member in now.items()
        }
        return lost


Run = tuple[str, HandleReference | None]
"""One attempt of one launch."""


def _run_of(instance: Instance) -> Run:
    return instance.record.nonce, instance.record.ref


class Rounds:
    """Goes round for as long as it is not cancelled."""

    def __init__(self, instances: Callable[[], Iterable[Instance]]) -> None:
        self._instances = instances
        self._watches: dict[Run, MemberWatch] = {}

    async def run(self) -> None:
        while True:
            await anyio.sleep(ROUND_S)
            await self.once()

    async def once(self) -> None:
        """Look at every ready instance, all in one go."""
        ready = [instance for instance in self._instances() if instance.ready]
        runs = [_run_of(instance) for instance in ready]
        self._watches = {run: self._watches.get(run, MemberWatch()) for run in runs}
        async with anyio.create_task_group() as looks:
            for instance in ready:
                looks.start_soon(self._look, instance)

    async def _look(self, instance: Instance) -> None:
        try:
            members = await instance.members()
        except (CannotTellError, anyio.ClosedResourceError):
            return
        if members is None:
            return
        watch = self._watches.get(_run_of(instance))
        lost = watch.compare(members) if watch else ()
        for member in lost[:MOST_EVENTS]:
            instance.publish(MemberLost(member=member))
