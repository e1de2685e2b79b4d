"""The probe against servers that accept, or do not, and the proof that they are ours."""

import errno
import queue
import socket
import struct

import anyio
import pytest
from blockbuster import blockbuster_ctx

from supervisor.contracts.engine import ReadyRequest
from supervisor.contracts.instance import Ownership
from supervisor.health import sockdiag
from supervisor.health.address import Addresses
from supervisor.health.outcome import NotReady, Outcome, Ready
from supervisor.health.probe import Probe
from supervisor.health.sockdiag import Unprovable
from tests.health.parts import (
    OK,
    FdOwner,
    Says,
    Server,
    check,
    free_port,
    probe_of,
    read_request,
    replies,
)

pytestmark = pytest.mark.anyio


def kind(outcome: Outcome) -> str:
    return outcome.kind if isinstance(outcome, NotReady) else "ready"


@pytest.mark.parametrize(
    ("bound", "asked", "dual_stack"),
    [
        ("127.0.0.1", "127.0.0.1", False),
        ("127.0.0.2", "127.0.0.2", False),
        ("0.0.0.0", "127.0.0.1", False),
        ("::1", "::1", False),
        ("::", "::1", True),
        ("::", "127.0.0.1", True),
    ],
)
async def test_ready_at_every_address(bound: str, asked: str, dual_stack: bool) -> None:
    """HLT-4."""
    with Server(replies(OK), bound, dual_stack=dual_stack) as server:
        async with probe_of(server.port, asked) as probe:
            assert isinstance(await probe.readiness(), Ready)
            assert isinstance(await probe.health(), Ready)
        assert {name.removeprefix("::ffff:") for name in server.reached} == {asked}


async def test_the_next_address_is_asked_where_the_first_has_nobody() -> None:
    with Server(replies(OK), "::1") as server:
        async with Probe(Addresses("localhost"), server.port, check(), FdOwner()) as probe:
            assert isinstance(await probe.readiness(), Ready)


async def test_nobody_there() -> None:
    async with probe_of(port := free_port()) as probe:
        outcome = await probe.readiness()
        assert outcome == NotReady("refused", f"127.0.0.1:{port}: Connection refused")
        assert probe.last is outcome


@pytest.mark.parametrize("deferred", [False, True])
async def test_an_http_1_0_server_that_closes_at_once_is_provable(deferred: bool) -> None:
    def answer_and_leave(conn: socket.socket) -> None:
        read_request(conn)
        conn.sendall(b"HTTP/1.0 200 OK\r\n\r\nok")

    with Server(answer_and_leave, deferred=deferred) as server:
        async with probe_of(server.port) as probe:
            for _ in range(20):
                assert isinstance(await probe.readiness(), Ready)


async def test_a_deferred_accept_gets_one_letter_and_then_the_whole_request() -> None:
    letters: queue.Queue[bytes] = queue.Queue()
    before_the_proof: list[bytes] = []
    requests: list[bytes] = []

    def handle(conn: socket.socket) -> None:
        letters.put(conn.recv(4096, socket.MSG_PEEK))
        requests.append(read_request(conn))
        conn.sendall(OK)

    class Watching(FdOwner):
        async def owns_socket(self, inode: int) -> Ownership:
            before_the_proof.append(await anyio.to_thread.run_sync(letters.get))
            return await super().owns_socket(inode)

    completion = ReadyRequest(method="POST", path="/v1/completions", body='{"max_tokens":1}')
    health = check(ready=completion)
    with Server(handle, deferred=True) as server:
        async with probe_of(server.port, health=health, owner=Watching()) as probe:
            assert isinstance(await probe.readiness(), Ready)
    assert before_the_proof == [b"G", b"P"]
    assert requests[0].startswith(b"GET /health HTTP/1.1\r\n")
    assert requests[1].startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert requests[1].endswith(b'\r\n\r\n{"max_tokens":1}')


async def test_a_stranger_is_sent_nothing_not_even_with_a_deferred_accept() -> None:
    for deferred in (False, True):
        heard: list[bytes] = []

        def listen(conn: socket.socket, heard: list[bytes] = heard) -> None:
            while data := conn.recv(4096):
                heard.append(data)

        with Server(listen, deferred=deferred) as server:
            async with probe_of(server.port, owner=Says("foreign"), api_key="sk-secret") as probe:
                outcome = await probe.readiness()
        assert kind(outcome) == "foreign"
        assert b"".join(heard) == (b"G" if deferred else b"")


async def test_no_rights_to_look_is_told_from_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(replies(OK)) as server:
        async with probe_of(server.port, owner=Says("unknown")) as probe:
            assert kind(await probe.readiness()) == "denied"

        def refuse(_: bytes) -> bytes:
            raise Unprovable("Operation not permitted")

        monkeypatch.setattr(sockdiag, "_ask", refuse)
        async with probe_of(server.port) as probe:
            outcome = await probe.readiness()
    assert outcome == NotReady("denied", "the server cannot be proved: Operation not permitted")


async def test_a_server_side_in_another_namespace_is_unproved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("supervisor.health.proof.server_side", lambda _: None)
    with Server(replies(OK)) as server:
        async with probe_of(server.port) as probe:
            assert kind(await probe.readiness()) == "unproved"


async def test_a_kernel_without_tcp_diag_is_told_from_that(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -errno.ENOENT)
    monkeypatch.setattr(sockdiag, "_ask", lambda _: missing)
    with Server(replies(OK)) as server:
        async with probe_of(server.port) as probe:
            outcome = await probe.readiness()
    assert kind(outcome) == "denied"
    assert "tcp_diag" in outcome.text


async def test_a_socket_seen_between_accept_and_the_descriptor_is_not_foreign() -> None:
    class Late(FdOwner):
        async def owns_socket(self, inode: int) -> Ownership:
            answer = await super().owns_socket(inode)
            return "foreign" if len(self.asked) == 1 else answer

    with Server(replies(OK)) as server:
        async with probe_of(server.port, owner=Late()) as probe:
            assert isinstance(await probe.readiness(), Ready)


async def test_the_proof_of_readiness_comes_after_health() -> None:
    asked: list[bytes] = []

    def handle(conn: socket.socket) -> None:
        while request := read_request(conn):
            asked.append(request)
            conn.sendall(OK)

    completion = ReadyRequest(method="POST", path="/v1/completions", body='{"max_tokens":1}')
    with Server(handle) as server:
        async with probe_of(server.port, health=check(ready=completion)) as probe:
            assert isinstance(await probe.readiness(), Ready)
            assert isinstance(await probe.health(), Ready)
    assert [request.split(b" HTTP")[0] for request in asked] == [
        b"GET /health",
        b"POST /v1/completions",
        b"GET /health",
    ]
    assert b"content-type: application/json" in asked[1].lower()


async def test_the_loop_is_never_blocked() -> None:
    with Server(replies(OK)) as server:
        async with probe_of(server.port, owner=Says("ours")) as probe:
            with blockbuster_ctx():
                assert isinstance(await probe.readiness(), Ready)
                assert isinstance(await probe.health(), Ready)


class Publisher(Says):
    """Vouches by what it saw a moment ago, unless it is asked to look again."""

    def __init__(self, now: Ownership) -> None:
        super().__init__("unknown")
        self.now = now

    async def publishes(self, port: int, *, again: bool = False) -> tuple[Ownership, str]:
        return (self.now, "looked") if again else ("ours", "")


@pytest.mark.parametrize(
    ("now", "expected"), [("ours", "refused"), ("unknown", "unproved"), ("foreign", "unreachable")]
)
async def test_a_miss_that_counts_has_its_publisher_looked_at_anew(
    now: Ownership, expected: str
) -> None:
    """A container engine that died a moment ago took the port with it, and not the engine."""
    async with probe_of(free_port(), owner=Publisher(now)) as probe:
        assert kind(await probe.health()) == expected
        assert kind(await probe.deep()) == expected
        assert kind(await probe.readiness()) == "refused"
