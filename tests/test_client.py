"""The typed client against a real socket."""

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from supervisor.client import Client, DaemonUnreachable, PermissionDenied, RpcError
from supervisor.contracts import rpc
from supervisor.contracts.event import Cursor, Phase
from supervisor.contracts.failure import AlreadyRunning
from supervisor.contracts.instance import LaunchParams
from supervisor.contracts.rpc import NameParams, Notification, StopParams, SubscribeParams
from tests.rpc.fake import Served, serving, view


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.path) as made:
        yield made


def test_calls_have_typed_results(client: Client) -> None:
    launched = client.launch(LaunchParams(name="a", engine="vllm"))
    assert (launched.state, launched.record.port) == ("ready", 21_000)
    assert client.info().counts == {"ready": 1}
    assert [one.record.name for one in client.list().instances] == ["a"]
    assert client.get("a").cursor.epoch == "e"
    assert client.plan(LaunchParams(name="b", engine="vllm")).fit.why == "a guess"
    assert client.snapshot().accelerators[0].memory_used_bytes is None
    assert client.leases().leases[0].holders[0].name == "a"
    assert client.engines().engines[1].support.reason == "needs Metal"
    assert client.wait("a").record.name == "a"
    assert client.stop(StopParams(name="a", grace_ms=5)).record.name == "a"
    assert client.list(ended=True).instances[0].state == "exited"


def test_the_raw_result_is_the_bytes_of_the_wire(client: Client) -> None:
    raw = client.raw("supervisor.info")
    assert raw == msgspec.json.encode(client.info())


def test_an_error_carries_its_code_and_a_failure_its_type(client: Client) -> None:
    client.launch(LaunchParams(name="a", engine="vllm"))
    with pytest.raises(RpcError) as refused:
        client.launch(LaunchParams(name="a", engine="vllm"))
    assert refused.value.code == 1002
    assert refused.value.failure == AlreadyRunning(name="a")
    with pytest.raises(RpcError) as unknown:
        client.get("b")
    assert (unknown.value.code, unknown.value.failure) == (rpc.NO_SUCH_INSTANCE, None)
    with pytest.raises(RpcError) as expired:
        client.subscribe(SubscribeParams(after=Cursor(epoch="x", seq=1)))
    assert expired.value.valid_cursor == Cursor(epoch="e", seq=3)


def test_what_is_told_during_a_call_is_kept_for_its_reader(served: Served, client: Client) -> None:
    begun = client.subscribe(SubscribeParams())
    client.launch(LaunchParams(name="a", engine="vllm"))
    events = client.events(begun.subscription)
    kinds = [msgspec.json.decode(next(events))["kind"] for _ in range(3)]
    assert kinds == ["reserved", "phase", "ready"]
    served.publish(Phase(instance="z", phase="later"))
    assert msgspec.json.decode(next(events))["phase"] == "later"
    client.unsubscribe(begun.subscription)


def test_what_is_told_during_a_call_can_be_seen_at_once(served: Served, client: Client) -> None:
    served.supervisor.slow["a"] = asyncio.Event()
    seen: list[Notification] = []

    def see(notice: Notification) -> None:
        seen.append(notice)
        served.release("a")

    client.subscribe(SubscribeParams())
    params = LaunchParams(name="a", engine="vllm")
    client.raw("instance.launch", params, on_notice=see)
    assert {notice.method for notice in seen} == {"event"}


def test_a_log_is_followed_to_its_end(served: Served, client: Client, tmp_path: Path) -> None:
    served.supervisor.views["a"] = view("a", "exited")
    (tmp_path / "a.log").write_text("one\ntwo\nrest")
    assert list(client.follow("a", 1)) == [("two",), ("rest",)]


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachable, match="no daemon is listening"):
        Client(str(tmp_path / "none")).info()
    with pytest.raises(DaemonUnreachable, match="cannot connect"):
        Client("x" * 200).info()


def test_not_allowed_is_not_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(PermissionDenied):
        Client(str(tmp_path / "s")).info()


def test_a_daemon_that_goes_away_in_between(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        client = Client(served.path)
        client.info()
    with pytest.raises(DaemonUnreachable, match="closed the connection"):
        client.info()
    with serving(tmp_path):
        assert client.info().version == "0.1.0"
    client.close()


def test_a_stranger_at_the_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener, Client(path) as client:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")

        stranger = threading.Thread(target=answer)
        stranger.start()
        with pytest.raises(DaemonUnreachable, match="not this daemon"):
            client.info()
        stranger.join()


def test_a_silent_daemon_is_given_up_on(served: Served, client: Client) -> None:
    served.supervisor.slow["a"] = asyncio.Event()
    served.supervisor.views["a"] = view("a")
    with pytest.raises(DaemonUnreachable, match="does not answer"):
        client.raw("instance.wait", NameParams(name="a"), timeout=0.05)


class Interrupted(Exception):
    """What the handler of a signal raises, as that of SIGINT does."""


def test_an_interrupt_that_comes_just_before_the_wait_is_not_lost(served: Served) -> None:
    """It finds no call that it could break off; so it is with one that another thread gets."""
    served.supervisor.views["a"] = view("a")
    served.supervisor.slow["a"] = asyncio.Event()

    def handle(number: int, frame: object) -> None:
        raise Interrupted

    def interrupt() -> None:
        time.sleep(0.5)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        in_time.append(over.wait(10))
        served.release("a")

    over, in_time = threading.Event(), list[bool]()
    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with Client(served.path) as client, pytest.raises(Interrupted):
            client.wait("a")
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert in_time == [True]
