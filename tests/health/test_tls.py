"""The probe inside TLS: unverified, proved by the socket as ever, and never held up."""

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from supervisor.health.address import Addresses
from supervisor.health.outcome import NotReady, Outcome, Ready
from supervisor.health.probe import Probe
from tests.health.parts import (
    OK,
    FdOwner,
    Handler,
    Says,
    Server,
    check,
    open_fds,
    probe_of,
    read_request,
    replies,
    silent,
    with_body,
)

pytestmark = pytest.mark.anyio

PEMS = Path(__file__).parents[1] / "parts" / "tls"


def over_tls(handler: Handler) -> Handler:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEMS / "cert.pem", PEMS / "key.pem")

    def handle(conn: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(conn, server_side=True) as secure:
            handler(secure)

    return handle


def secure_probe(port: int, owner: FdOwner | Says | None = None, timeout_ms: int = 2_000) -> Probe:
    health = check(timeout_ms=timeout_ms)
    return Probe(
        Addresses("127.0.0.1"), port, health, owner or FdOwner(), api_key="sesame", tls=True
    )


def kind(outcome: Outcome) -> str:
    return outcome.kind if isinstance(outcome, NotReady) else "ready"


@pytest.mark.parametrize("deferred", [False, True])
async def test_an_engine_with_a_certificate_that_nobody_trusts(deferred: bool) -> None:
    """It has expired, and names somebody else. The first byte may have to go ahead."""
    requests: list[bytes] = []

    def handle(conn: socket.socket) -> None:
        while request := read_request(conn):
            requests.append(request)
            conn.sendall(OK)

    with Server(over_tls(handle), deferred=deferred) as server:
        async with secure_probe(server.port) as probe:
            assert isinstance(await probe.readiness(), Ready)
            assert isinstance(await probe.health(), Ready)
            assert isinstance(await probe.health(), Ready)
        assert server.accepted == 2  # the second and third were asked on one connection
    assert all(request.startswith(b"GET /health HTTP/1.1\r\n") for request in requests)
    assert all(b"Bearer sesame" in request for request in requests)


async def test_a_long_page_comes_through_whole() -> None:
    page = b"x" * 300_000
    with Server(over_tls(replies(with_body(page)))) as server:
        async with secure_probe(server.port) as probe:
            reply = await probe.page("/metrics", limit=1 << 20, within_s=5)
    assert reply.body == page
    assert reply.whole


async def test_a_server_that_closes_without_a_word_has_answered() -> None:
    """HTTP/1.0 inside TLS: the end of the connection is the end of the body."""

    def handle(conn: socket.socket) -> None:
        read_request(conn)
        conn.sendall(b"HTTP/1.0 200 OK\r\n\r\nfine")

    with Server(over_tls(handle)) as server:
        async with secure_probe(server.port) as probe:
            reply = await probe.page("/", limit=100, within_s=5)
    assert (reply.body, reply.whole) == (b"fine", True)


async def test_plain_and_tls_do_not_understand_each_other() -> None:
    with Server(replies(OK)) as server:
        async with secure_probe(server.port) as probe:
            outcome = await probe.readiness()
    assert kind(outcome) in ("malformed", "reset", "timeout")
    with Server(over_tls(replies(OK))) as server:
        async with probe_of(server.port) as plain:
            assert kind(await plain.readiness()) in ("malformed", "reset")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x28"])
async def test_what_is_no_tls_is_said_to_be_none(answer: bytes) -> None:
    def handle(conn: socket.socket) -> None:
        conn.recv(65536)
        conn.sendall(answer)

    with Server(handle) as server:
        async with secure_probe(server.port) as probe:
            outcome = await probe.readiness()
    assert isinstance(outcome, NotReady)
    assert outcome.kind == "malformed"
    assert "no TLS came back" in outcome.text


async def test_a_handshake_that_never_ends_costs_one_timeout() -> None:
    before = open_fds()
    with Server(silent) as server:
        async with secure_probe(server.port, timeout_ms=200) as probe:
            assert kind(await probe.readiness()) == "timeout"
    assert open_fds() <= before


async def test_a_stranger_gets_no_handshake() -> None:
    heard: list[bytes] = []
    with Server(lambda conn: heard.append(conn.recv(65536))) as server:
        async with secure_probe(server.port, Says("foreign")) as probe:
            assert kind(await probe.readiness()) == "foreign"
    assert heard == [b""]
