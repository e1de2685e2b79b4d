"""What the probe says and hears: replies of every kind, hostile ones among them."""

import socket
import time

import pytest
from msgspec.structs import replace

from supervisor.contracts.engine import ReadyRequest
from supervisor.health.outcome import NotReady, Outcome, Ready
from tests.health.parts import (
    OK,
    UNAVAILABLE,
    Handler,
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
    """HLT-2, HLT-8."""
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
    """HLT-8."""
    began = time.monotonic()
    outcome = await ask(silent, 150)
    assert kind(outcome) == "timeout"
    assert 0.14 < time.monotonic() - began < 2


async def test_a_byte_at_a_time_does_not_stretch_the_timeout() -> None:
    """HLT-8."""

    def drip(conn: socket.socket) -> None:
        read_request(conn)
        for byte in b"HTTP/1.1 200 OK\r\n" + b"x" * 1_000:
            conn.sendall(bytes([byte]))
            time.sleep(0.02)

    began = time.monotonic()
    assert kind(await ask(drip, 200)) == "timeout"
    assert time.monotonic() - began < 2


async def test_an_endless_body_is_read_up_to_a_bound() -> None:
    """HLT-8."""
    sent = 0

    def pour(conn: socket.socket) -> None:
        nonlocal sent
        read_request(conn)
        conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            sent += conn.send(b"z" * 65_536)

    assert isinstance(await ask(pour), Ready)
    assert sent < 16 * 1024 * 1024


async def test_a_reset_is_a_reset() -> None:
    def reset_after_request(conn: socket.socket) -> None:
        read_request(conn)
        hang_up(conn)

    for handler in (hang_up, reset_after_request, lambda conn: None):
        assert kind(await ask(handler)) == "reset"


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
    """HLT-1."""
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


@pytest.mark.parametrize(("works", "expected"), [(True, "ready"), (False, "status")])
async def test_a_deep_check_finds_an_engine_that_is_well_and_does_not_work(
    works: bool, expected: str
) -> None:
    seen: list[bytes] = []

    def handle(conn: socket.socket) -> None:
        request = read_request(conn)
        seen.append(request.split(b" HTTP")[0])
        well = b"GET /health" in request or works
        conn.sendall(OK if well else with_body(b"", "500 Internal Server Error"))

    deep = ReadyRequest(method="POST", path="/v1/completions", body='{"max_tokens": 1}')
    with Server(handle) as server:
        health = replace(check(timeout_ms=2_000), deep=deep)
        async with probe_of(server.port, health=health) as probe:
            assert kind(await probe.readiness()) == "ready"
            assert kind(await probe.deep()) == expected
    assert seen == [b"GET /health", b"POST /v1/completions"]


async def test_a_deep_check_that_is_refused_for_want_of_a_key_says_nothing() -> None:
    def handle(conn: socket.socket) -> None:
        guarded = b"GET /health" not in read_request(conn)
        conn.sendall(with_body(b"", "401 Unauthorized") if guarded else OK)

    deep = ReadyRequest(method="POST", path="/v1/completions", body='{"max_tokens": 1}')
    with Server(handle) as server:
        async with probe_of(server.port, health=replace(check(), deep=deep)) as probe:
            outcome = await probe.deep()
    assert isinstance(outcome, Ready)
    assert outcome.text == "GET /health: HTTP 200"


async def test_without_such_a_request_a_deep_check_is_the_ordinary_one() -> None:
    with Server(replies(OK)) as server:
        async with probe_of(server.port, health=check()) as probe:
            assert (await probe.deep()).text == "GET /health: HTTP 200"
