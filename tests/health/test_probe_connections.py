"""How many connections a probe has, when, and what becomes of them."""

import socket
import threading
import time

import anyio
import pytest

from supervisor.contracts.engine import ReadyRequest
from supervisor.health.outcome import NotReady, Ready
from tests.health.parts import (
    OK,
    Server,
    check,
    hang_up,
    probe_of,
    read_request,
    replies,
    silent,
    with_body,
)

pytestmark = pytest.mark.anyio


async def test_fresh_while_loading_and_kept_once_ready() -> None:
    with Server(replies(OK)) as server:
        async with probe_of(server.port) as probe:
            for _ in range(3):
                await probe.readiness()
            assert server.accepted == 3
            for _ in range(3):
                await probe.health()
            assert server.accepted == 4


@pytest.mark.parametrize("end", [hang_up, socket.socket.close])
async def test_a_kept_connection_that_ended_is_replaced_and_is_no_miss(end: object) -> None:
    def once(conn: socket.socket) -> None:
        read_request(conn)
        conn.sendall(OK)
        time.sleep(0.02)
        assert callable(end)
        end(conn)

    with Server(once) as server:
        async with probe_of(server.port) as probe:
            for count in range(1, 6):
                assert isinstance(await probe.health(), Ready)
                assert server.accepted == count
                await anyio.sleep(0.05)


async def test_a_reset_in_answer_to_a_request_on_a_kept_connection_is_retried_once() -> None:
    def answer_once_and_reset_the_next(conn: socket.socket) -> None:
        read_request(conn)
        conn.sendall(OK)
        read_request(conn)
        hang_up(conn)

    with Server(answer_once_and_reset_the_next) as server:
        async with probe_of(server.port) as probe:
            for _ in range(5):
                assert isinstance(await probe.health(), Ready)
            assert server.accepted == 5


async def test_a_fresh_connection_that_is_reset_is_a_miss_with_no_second_try() -> None:
    with Server(hang_up) as server:
        async with probe_of(server.port) as probe:
            outcome = await probe.health()
        assert isinstance(outcome, NotReady)
        assert outcome.kind == "reset"
        assert server.accepted == 1


async def test_a_miss_on_a_kept_connection_closes_it() -> None:
    with Server(replies(OK, with_body(b"", "503 No"))) as server:
        async with probe_of(server.port) as probe:
            assert isinstance(await probe.health(), Ready)
            assert isinstance(await probe.health(), NotReady)
            assert isinstance(await probe.health(), Ready)
            assert server.accepted == 2


async def test_a_hung_engine_has_one_probe_in_its_backlog_and_answers_it_later() -> None:
    with Server(replies(OK), accepts=0) as server:
        async with probe_of(server.port, health=check(timeout_ms=40)) as probe:
            for ask in (probe.readiness, probe.health) * 5:
                outcome = await ask()
                assert isinstance(outcome, NotReady)
                assert outcome.kind == "timeout"
            assert _waiting(server.port) == 1
            server.accept_more()
            assert isinstance(await probe.readiness(), Ready)
            assert server.accepted == 1


async def test_with_a_deferred_accept_too() -> None:
    with Server(replies(OK), accepts=0, deferred=True) as server:
        async with probe_of(server.port, health=check(timeout_ms=40)) as probe:
            for _ in range(5):
                assert isinstance(await probe.readiness(), NotReady)
            assert _waiting(server.port) == 1
            server.accept_more()
            assert isinstance(await probe.readiness(), Ready)
            assert server.accepted == 1


async def test_a_parked_connection_is_left_when_its_letter_fits_another_request() -> None:
    asked: list[bytes] = []

    def handle(conn: socket.socket) -> None:
        while request := read_request(conn):
            asked.append(request.split()[0])
            conn.sendall(OK)

    health = check(timeout_ms=60, ready=ReadyRequest(method="POST", path="/v1", body="{}"))
    with Server(handle, accepts=1, deferred=True) as server:
        async with probe_of(server.port, health=health) as probe:
            assert isinstance(await probe.readiness(), NotReady)
            server.accept_more()
            assert isinstance(await probe.readiness(), Ready)
    assert asked == [b"GET", b"GET", b"POST"]


async def test_a_parked_connection_that_was_dropped_is_replaced_at_once() -> None:
    first = True

    def drop_the_first(conn: socket.socket) -> None:
        nonlocal first
        if first:
            first = False
            hang_up(conn)
        else:
            replies(OK)(conn)

    with Server(drop_the_first, accepts=0) as server:
        async with probe_of(server.port, health=check(timeout_ms=40)) as probe:
            assert isinstance(await probe.readiness(), NotReady)
            server.accept_more()
            await anyio.sleep(0.05)
            assert isinstance(await probe.readiness(), Ready)


async def test_probes_of_one_instance_do_not_overlap() -> None:
    def slow(conn: socket.socket) -> None:
        read_request(conn)
        time.sleep(0.03)
        conn.sendall(OK)

    with Server(slow) as server:
        async with probe_of(server.port) as probe, anyio.create_task_group() as tasks:
            began = anyio.current_time()
            for _ in range(4):
                tasks.start_soon(probe.readiness)
        assert anyio.current_time() - began > 0.12


@pytest.mark.parametrize("accepts", [1, 0])
async def test_a_cancelled_probe_closes_its_connection(accepts: int) -> None:
    ended = threading.Event()

    def wait_for_the_end(conn: socket.socket) -> None:
        silent(conn)
        ended.set()

    with Server(wait_for_the_end, accepts=accepts) as server:
        probe = probe_of(server.port)
        with anyio.move_on_after(0.05) as scope:
            await probe.readiness()
        assert scope.cancelled_caught
        if not accepts:
            server.accept_more()
        assert await anyio.to_thread.run_sync(ended.wait, 2)


async def test_close_ends_what_is_open_between_probes() -> None:
    for accepts in (1, 0):
        with Server(replies(OK), accepts=accepts) as server:
            probe = probe_of(server.port, health=check(timeout_ms=40))
            await probe.health()
            assert _ours(server.port) == 1
            await probe.close()
            assert _ours(server.port) == 0


async def test_the_engine_s_port_is_not_left_in_time_wait() -> None:
    with Server(replies(OK)) as server:
        async with probe_of(server.port) as probe:
            assert isinstance(await probe.readiness(), Ready)
        await anyio.sleep(0.05)
    with socket.socket() as engine:
        engine.bind(("127.0.0.1", server.port))


ESTABLISHED = "01"


def _rows() -> list[list[str]]:
    with open("/proc/net/tcp") as table:
        return [line.split() for line in table][1:]


def _waiting(port: int) -> int:
    """Server sides that nobody has accepted; a closed one would be counted too."""
    queued = f":{port:04X}"
    held = [row for row in _rows() if row[1].endswith(queued) and row[3] != "0A"]
    return sum(row[9] == "0" for row in held)


def _ours(port: int) -> int:
    """Client sides that are open."""
    there = f":{port:04X}"
    return sum(row[2].endswith(there) and row[3] == ESTABLISHED for row in _rows())
