"""What one connection has subscribed to. Each subscription goes at its client's own pace.

A subscription owns no queue. It reads on (from the bus's ring, from a log file) only when what it
wrote before has left for the client, so a client that stalls costs its one batch of references and
delays nobody; when it comes back too late, it is told so.
"""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, Protocol

import structlog

from supervisor.bus import Subscription as Place
from supervisor.contracts import rpc
from supervisor.contracts.rpc import LogNotice, SubscriptionEnded
from supervisor.lifecycle.api import Supervisor
from supervisor.lifecycle.errors import NoSuchInstance
from supervisor.logs.following import IDLE_PERIODS, PERIOD_S, Follower
from supervisor.logs.reading import Chunk
from supervisor.logs.text import Mask
from supervisor.rpc.envelope import encode_notice
from supervisor.rpc.faults import Fault, error_of
from supervisor.rpc.filters import Wanted

MAX_SUBSCRIPTIONS = 64
WRITE_BYTES = 32 * 1024
"""What is written at once, and the mark above which a connection's writers wait."""

_logger = structlog.get_logger(__name__)


class Outbox(Protocol):
    """The sending side of a connection."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None:
        """Return once less than the high-water mark waits to be sent."""


class Subscriptions:
    """The subscriptions of one connection, by id."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._count = 0
        self._tasks: dict[str, asyncio.Task[None] | None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def reserve(self) -> str:
        """An id for a subscription that is to be started. Raises ``Fault`` when there are many."""
        if len(self._tasks) >= MAX_SUBSCRIPTIONS:
            raise Fault(
                rpc.OVERLOADED,
                f"this connection has {MAX_SUBSCRIPTIONS} subscriptions; end one of them",
            )
        self._count += 1
        name = f"s{self._count}"
        self._tasks[name] = None
        return name

    def start_events(self, name: str, place: Place, wants: Wanted) -> None:
        """Send the events from ``place`` on that are wanted."""
        self._start(name, self._events(name, place, wants))

    def start_log(
        self, name: str, supervisor: Supervisor, instance: str, path: str, cursor: int
    ) -> None:
        """Send an instance's log from ``cursor`` in ``path`` on, through all further attempts."""
        self._start(name, self._log(name, supervisor, instance, path, cursor))

    def end(self, name: str) -> bool:
        """Send nothing more for this subscription. False where there is none of this id."""
        if name not in self._tasks:
            return False
        if task := self._tasks.pop(name):
            task.cancel()
        return True

    def end_all(self) -> None:
        for name in tuple(self._tasks):
            self.end(name)

    def _start(self, name: str, work: Coroutine[Any, Any, SubscriptionEnded]) -> None:
        if name not in self._tasks:
            work.close()
            return
        self._tasks[name] = asyncio.create_task(self._run(name, work), name=f"rpc-{name}")

    async def _run(self, name: str, work: Coroutine[Any, Any, SubscriptionEnded]) -> None:
        try:
            ended = await work
        except Exception as problem:
            error = error_of(problem)
            if error is None:
                _logger.exception("subscription failed", subscription=name)
                error = Fault(rpc.INTERNAL_ERROR, "internal error; see the daemon's log").error
            ended = SubscriptionEnded(subscription=name, error=error)
        self._tasks.pop(name, None)
        self._outbox.write(encode_notice("subscription.ended", ended))

    async def _events(self, name: str, place: Place, wants: Wanted) -> SubscriptionEnded:
        head = b'{"method":"event","params":{"subscription":"%s","event":' % name.encode()
        end = b'},"jsonrpc":"2.0"}\n'
        while True:
            parts: list[bytes] = []
            size = 0
            for event in await place.next():
                if not wants(event):
                    continue
                parts += (head, event.encoded, end)
                size += len(event.encoded)
                if size >= WRITE_BYTES:
                    await self._send(parts)
                    size = 0
            await self._send(parts)
            # A reader that finds events waiting never yields by itself.
            await asyncio.sleep(0)

    async def _log(
        self, name: str, supervisor: Supervisor, instance: str, path: str, cursor: int
    ) -> SubscriptionEnded:
        follower, idle = Follower(path, cursor), 0
        while True:
            # Asked before the read: what an engine wrote before its end is read after it.
            over, newest, mask = _log_state(supervisor, instance)
            moved_on = newest != follower.path
            chunk = await _read(follower, mask, over or moved_on or idle == IDLE_PERIODS)
            if chunk is not None:
                idle = 0
                if chunk.lines:
                    notice = LogNotice(
                        subscription=name,
                        lines=chunk.lines,
                        cursor=chunk.cursor,
                        log=os.path.basename(follower.path),
                    )
                    await self._send([encode_notice("log", notice)])
            elif moved_on:
                follower, idle = Follower(newest, 0), 0
            elif over:
                return SubscriptionEnded(subscription=name)
            else:
                idle += 1
                await asyncio.sleep(PERIOD_S)

    async def _send(self, parts: list[bytes]) -> None:
        if parts:
            self._outbox.write(b"".join(parts))
            parts.clear()
            await self._outbox.drained()


def _log_state(supervisor: Supervisor, instance: str) -> tuple[bool, str, Mask]:
    """Whether it has ended, where its newest attempt writes, and what hides its secrets."""
    try:
        return (
            supervisor.get(instance).state == "exited",
            supervisor.log_path(instance),
            supervisor.redactor(instance),
        )
    except NoSuchInstance:
        raise Fault(rpc.NO_SUCH_INSTANCE, f"{instance} is no longer known") from None


async def _read(follower: Follower, mask: Mask, unfinished: bool) -> Chunk | None:
    try:
        return await follower.read(mask, unfinished=unfinished)
    except OSError as error:
        raise Fault(rpc.UNAVAILABLE, f"cannot read {follower.path}: {error.strerror}") from None
