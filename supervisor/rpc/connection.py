"""One client's connection: an asyncio protocol that answers what it can on the spot.

It takes in no more than its client takes out: while replies wait to be sent, or while more
requests have arrived than fit one turn of the loop, it does not read.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Any, Protocol, cast

from msgspec import UNSET, Raw

from supervisor.bus import Bus
from supervisor.contracts import rpc
from supervisor.contracts.config import AccessConfig
from supervisor.contracts.rpc import Request
from supervisor.lifecycle.api import Supervisor
from supervisor.rpc import envelope
from supervisor.rpc.dispatch import Batch, Deliver, failed, method_for
from supervisor.rpc.envelope import BadRequest
from supervisor.rpc.faults import Fault
from supervisor.rpc.framing import LineBuffer, LineTooLong
from supervisor.rpc.method import Method, Session, Then
from supervisor.rpc.peers import Role, peer_uid, role_of
from supervisor.rpc.subscriptions import WRITE_BYTES, Subscriptions

MAX_IN_FLIGHT = 64
"""More than these are refused and not queued: the next may be the cancel of one of them."""
TURN_S = 0.002
"""How long one connection's requests may keep the loop from its other business."""
LINGER_S = 1.0
"""How long a refused client may go on sending, so that it comes to read why."""
HANGUP_PERIOD_S = 1.0


class Hub(Protocol):
    """The server, as a connection sees it."""

    supervisor: Supervisor
    bus: Bus
    access: AccessConfig
    tasks: set[asyncio.Task[None]]
    """Of all connections; some outlive theirs."""

    def admit(self, connection: "Connection", uid: int | None) -> bool:
        """Note a new connection. False when there are too many, of all or of this user."""

    def keep(self, connection: "Connection", unfinished: int) -> bool:
        """Note the bytes of its unfinished request. False when its user has too many of them."""

    def forget(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """The state of one connection. Everything here runs on the loop's thread."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._lines = LineBuffer()
        self._subscriptions = Subscriptions(self)
        self._tasks: dict[asyncio.Task[None], Method] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._timer: asyncio.TimerHandle | None = None
        self._yielding = False  # lines are left for the next turn
        self._no_lines = True  # everything that arrived was looked at
        self._at_end = False  # the client sends no more
        self._deaf = False  # what the client sends is dropped
        self._mute = False  # nothing more is sent
        self._stopping = False

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        self._uid = peer_uid(transport.get_extra_info("socket"))
        if self._hub.admit(self, self._uid):
            self.take_role()
        else:
            self._refuse(Fault(rpc.OVERLOADED, "too many connections; close some, or try later"))

    def take_role(self) -> None:
        """What its user may do by the access in effect, which a reload changes. Who may do nothing
        is told so and hung up on, as a client that left by itself."""
        uid, hub = self._uid, self._hub
        role = role_of(uid, hub.access)
        self._session = Session(hub.supervisor, hub.bus, role or Role.READ, self._subscriptions)
        if role is None and not self._mute:
            who = "an unknown user" if uid is None else f"uid {uid}"
            hint = "have the uid put into `access.read`, `.operate` or `.admin` of its config"
            self._refuse(Fault(rpc.FORBIDDEN, f"{who} may not use this daemon; {hint}"))

    def data_received(self, data: bytes) -> None:
        if not self._deaf:
            self._lines.feed(data)
            self._advance()
            self._account()

    def _account(self) -> None:
        if not self._hub.keep(self, self._lines.unfinished) and not self._deaf:
            self._refuse(
                Fault(rpc.OVERLOADED, "this user's unfinished requests are too many bytes"),
                linger=True,
            )
            self._hub.keep(self, 0)

    def eof_received(self) -> bool:
        """The client sends no more. Half closed, it still gets all of its answers."""
        self._at_end = True
        if self._deaf:
            return False
        self._lines.feed(b"\n")  # the last request needs no line end
        self._advance()
        return True

    def pause_writing(self) -> None:
        self._room.clear()
        self._pace()

    def resume_writing(self) -> None:
        self._room.set()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = self._mute = True
        self._lines.clear()
        if self._timer:
            self._timer.cancel()
        self._subscriptions.end_all()
        for task, method in self._tasks.items():
            if not method.finishes:
                task.cancel()
        self._hub.forget(self)

    # Called by subscriptions and by the server.

    def write(self, data: bytes) -> None:
        if not self._mute:
            self._transport.write(data)

    async def drained(self) -> None:
        await self._room.wait()

    def stop(self) -> None:
        """The daemon leaves: nothing new is taken, and who waits for an answer is told so."""
        self._deaf = self._stopping = True
        self._lines.clear()
        self._no_lines = True
        self._subscriptions.end_all()
        for task in self._tasks:
            task.cancel()
        self._finish()

    def abort(self) -> None:
        self._transport.abort()

    # From bytes to requests.

    def _advance(self) -> None:
        """Answer what has arrived, as long as the client takes the answers."""
        deadline = self._loop.time() + TURN_S
        try:
            while not self._deaf and self._room.is_set():
                line = self._lines.take()
                self._no_lines = line is None
                if line is None:
                    break
                if line.strip():
                    self._take(line)
                if self._loop.time() > deadline:
                    self._next_turn()
                    break
        except LineTooLong:
            self._refuse(
                Fault(rpc.TOO_LARGE, f"a request has more than {rpc.MAX_REQUEST_BYTES} bytes"),
                linger=True,
            )
        self._pace()
        self._finish()

    def _next_turn(self) -> None:
        if not self._yielding:
            self._yielding = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._yielding = False
        self._advance()

    def _pace(self) -> None:
        if self._at_end:
            return
        if self._deaf or (self._room.is_set() and not self._yielding):
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _finish(self) -> None:
        """Close once the client can neither ask nor be told anything more."""
        if not (self._at_end or self._stopping) or self._transport.is_closing():
            return
        if self._no_lines and not self._tasks and not self._subscriptions:
            self._transport.close()
        elif self._timer is None:
            self._watch()

    def _watch(self) -> None:
        """At its end of input a connection is no longer read, so its loss would go unnoticed."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), 0)
        if poll.poll(0) and self._no_lines:
            self._transport.abort()
            return
        self._timer = self._loop.call_later(HANGUP_PERIOD_S, self._watch)
        self._finish()

    def _refuse(self, fault: Fault, *, linger: bool = False) -> None:
        self.write(envelope.encode_error(None, fault.error) + b"\n")
        self._deaf = self._mute = self._no_lines = True
        self._lines.clear()
        if self._timer:
            self._timer.cancel()
        if linger:
            self._transport.write_eof()
            self._timer = self._loop.call_later(LINGER_S, self._transport.abort)
        else:
            self._transport.close()

    # From requests to replies.

    def _take(self, line: bytes) -> None:
        if not envelope.is_batch(line):
            self._handle(line, self._deliver)
            return
        try:
            members = envelope.parse_batch(line)
        except BadRequest as bad:
            self._deliver(envelope.encode_error(None, bad.fault.error))
            return
        batch = Batch(len(members), self._deliver)
        for member in members:
            self._handle(member, batch.deliver)

    def _handle(self, message: bytes | Raw, deliver: Deliver) -> None:
        try:
            request = envelope.parse_request(message)
        except BadRequest as bad:
            deliver(envelope.encode_error(bad.id, bad.fault.error))
            return
        try:
            method, params = method_for(request, self._session.role)
            if method.immediate:
                _reply(request, method.handler(self._session, params), deliver)
            else:
                self._spawn(request, method, params, deliver)
        except Exception as problem:
            deliver(failed(request, problem))

    def _spawn(self, request: Request, method: Method, params: Any, deliver: Deliver) -> None:
        if len(self._tasks) >= MAX_IN_FLIGHT:
            raise Fault(
                rpc.OVERLOADED,
                f"{MAX_IN_FLIGHT} requests of this connection are being worked on; "
                "wait for one of them, or open another connection",
            )
        task = self._loop.create_task(
            self._run(request, method, params, deliver), name=f"rpc {method.name}"
        )
        self._tasks[task] = method
        self._hub.tasks.add(task)
        task.add_done_callback(self._done)

    async def _run(self, request: Request, method: Method, params: Any, deliver: Deliver) -> None:
        try:
            _reply(request, await method.handler(self._session, params), deliver)
        except asyncio.CancelledError:
            if self._stopping:
                gone = "the daemon is stopping; ask the next one how this went"
                deliver(failed(request, Fault(rpc.UNAVAILABLE, gone)))
            raise
        except Exception as problem:
            deliver(failed(request, problem))

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._hub.tasks.discard(task)
        self._finish()

    def _deliver(self, reply: bytes | None, then: Callable[[], None] | None = None) -> None:
        if reply is not None:
            self.write(reply + b"\n")
        if then is not None:
            then()


def _reply(request: Request, outcome: Any, deliver: Deliver) -> None:
    then = None
    if isinstance(outcome, Then):
        outcome, then = outcome.result, outcome.start
    reply = None if request.id is UNSET else envelope.encode_result(request.id, outcome)
    deliver(reply, then)
