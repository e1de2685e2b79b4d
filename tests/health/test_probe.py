"""The probe against servers that behave, and against servers that do not."""

import errno
import queue
import socket
import struct
import time
from ipaddress import ip_address

import anyio
import pytest
from blockbuster import blockbuster_ctx

from supervisor.contracts.engine import ReadyRequest
from supervisor.contracts.instance import Ownership
from supervisor.health import sockdiag
from supervisor.health.outcome import NotReady, Outcome, Ready
from supervisor.health.probe import Probe
from supervisor.health.sockdiag import Unprovable
from tests.health.parts import (
    OK,
    UNAVAILABLE,
    FdOwner,
    Handler,
    Says,
    Server,
    check,
    free_port,
    hang_up,
    open_fds,
    probe_of,
    read_request,
    replies,
    silent,
    with_body,
)

pytestmark = pytest.mark.anyio


async def ask(handler: Handler, timeout_ms: int = 2_000) -> Outcome:
    with Server(handler) as server:
        async with probe_of(server.port, health=check(timeout_ms=timeout_ms)) as probe:
            return await probe.readiness()


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
    with Server(replies(OK), bound, dual_stack=dual_stack) as server:
        async with probe_of(server.port, asked) as probe:
            assert isinstance(await probe.readiness(), Ready)
            assert isinstance(await probe.health(), Ready)
        assert {name.removeprefix("::ffff:") for name in server.reached} == {asked}


async def test_the_next_address_is_asked_where_the_first_has_nobody() -> None:
    with Server(replies(OK), "::1") as server:
        addresses = [ip_address("127.0.0.1"), ip_address("::1")]
        async with Probe(addresses, server.port, check(), FdOwner()) as probe:
            assert isinstance(await probe.readiness(), Ready)


async def test_nobody_there() -> None:
    async with probe_of(port := free_port()) as probe:
        outcome = await probe.readiness()
        assert outcome == NotReady("refused", f"127.0.0.1:{port}: Connection refused")
        assert probe.last is outcome


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK, "ready"),
        (with_body(b'{"status":"ok"}'), "ready"),
        (with_body(b'{"status":"loading"}'), "loading"),
        (with_body(b'{"object":"list","data":[]}'), "loading"),
        (UNAVAILABLE, "status"),
        (with_body(b"", "401 Unauthorized"), "status"),
        (with_body(b"<html>", "302 Found", "Location: /login"), "status"),
        (with_body(b"\x1f\x8b garbage", "200 OK", "Content-Encoding: gzip"), "ready"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "malformed"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "malformed"),
        (b"HTTP/1.1 200 \x1b[2J" + b"x" * 5_000 + b"\r\nContent-Length: 0\r\n\r\n", "malformed"),
        (b"HTTP/1.1 503 " + b"A" * 5_000 + b"\r\nContent-Length: 0\r\n\r\n", "status"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", "malformed"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "malformed"),
    ],
    ids=range(14),
)
async def test_replies(answer: bytes, expected: str) -> None:
    outcome = await ask(replies(answer))
    assert kind(outcome) == expected
    assert outcome.text.isprintable()
    assert len(outcome.text) <= 200


async def test_a_503_shows_what_the_server_said() -> None:
    outcome = await ask(replies(UNAVAILABLE))
    assert outcome.text == "GET /health: HTTP 503 Service Unavailable Loading"


async def test_a_redirect_is_named_and_not_followed() -> None:
    paths: list[bytes] = []

    def handle(conn: socket.socket) -> None:
        paths.append(read_request(conn).split()[1])
        conn.sendall(with_body(b"", "302 Found", "Location: /login\x7f"))

    assert "/login" in (await ask(handle)).text
    assert paths == [b"/health"]


async def test_silence_after_the_accept_is_a_timeout() -> None:
    began = time.monotonic()
    outcome = await ask(silent, 150)
    assert kind(outcome) == "timeout"
    assert 0.14 < time.monotonic() - began < 2


async def test_a_byte_at_a_time_does_not_stretch_the_timeout() -> None:
    def drip(conn: socket.socket) -> None:
        read_request(conn)
        for byte in b"HTTP/1.1 200 OK\r\n" + b"x" * 1_000:
            conn.sendall(bytes([byte]))
            time.sleep(0.02)

    began = time.monotonic()
    assert kind(await ask(drip, 200)) == "timeout"
    assert time.monotonic() - began < 2


async def test_an_endless_body_is_read_up_to_a_bound() -> None:
    sent = 0

    def pour(conn: socket.socket) -> None:
        nonlocal sent
        read_request(conn)
        conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            sent += conn.send(b"z" * 65_536)

    assert isinstance(await ask(pour), Ready)
    assert sent < 16 * 1024 * 1024


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


async def test_a_reset_is_a_reset() -> None:
    def reset_after_request(conn: socket.socket) -> None:
        read_request(conn)
        hang_up(conn)

    for handler in (hang_up, reset_after_request, lambda conn: None):
        assert kind(await ask(handler)) == "reset"


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


async def test_the_key_is_sent_and_never_shown() -> None:
    def echo(conn: socket.socket) -> None:
        request = read_request(conn)
        assert b"Authorization: Bearer sk-secret" in request
        conn.sendall(with_body(request, "418 sk-secret"))

    with Server(echo) as server:
        async with probe_of(server.port, api_key="sk-secret") as probe:
            outcome = await probe.readiness()
    assert kind(outcome) == "status"
    assert "sk-secret" not in outcome.text


async def test_no_connection_close_is_asked_for_and_no_cookie_comes_back() -> None:
    requests: list[bytes] = []

    def handle(conn: socket.socket) -> None:
        while request := read_request(conn):
            requests.append(request.lower())
            conn.sendall(with_body(b"", "200 OK", "Set-Cookie: a=b"))

    with Server(handle) as server:
        async with probe_of(server.port) as probe:
            await probe.readiness()
            await probe.health()
            await probe.health()
    assert len(requests) == 3
    assert not any(b"cookie:" in r or b"connection:" in r for r in requests)


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    targets: list[bytes] = []

    def handle(conn: socket.socket) -> None:
        while request := read_request(conn):
            targets.append(request.split()[1])
            conn.sendall(OK)

    with Server(replies(UNAVAILABLE)) as proxy, Server(handle) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "")
        async with probe_of(server.port) as probe:
            assert isinstance(await probe.readiness(), Ready)
            assert isinstance(await probe.health(), Ready)
        assert proxy.accepted == 0
    assert targets == [b"/health"] * 2


async def test_the_loop_is_never_blocked() -> None:
    with Server(replies(OK)) as server:
        async with probe_of(server.port, owner=Says("ours")) as probe:
            with blockbuster_ctx():
                assert isinstance(await probe.readiness(), Ready)
                assert isinstance(await probe.health(), Ready)


async def test_descriptors_stay_flat() -> None:
    def odd(conn: socket.socket) -> None:
        read_request(conn)
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nno")

    refused, before = free_port(), open_fds()
    with Server(replies(UNAVAILABLE)) as busy, Server(odd) as broken, Server(hang_up) as rude:
        for port in (busy.port, broken.port, rude.port, refused):
            async with probe_of(port) as probe:
                for _ in range(125):
                    assert isinstance(await probe.readiness(), NotReady)
    assert open_fds() == before
