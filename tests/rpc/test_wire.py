"""JSON-RPC over the socket: pieces, sizes, batches, and everything that is not a request."""

import asyncio
import json
import resource
import socket
import time
from pathlib import Path

import pytest

from supervisor.contracts import rpc
from tests.rpc.fake import Served, serving, view
from tests.rpc.wire import Wire, connected, encoded

INFO = encoded("supervisor.info") + b"\n"


def _padded(size: int, ident: int = 1) -> bytes:
    """A valid request line of exactly ``size`` bytes, its line end not counted."""
    line = encoded("supervisor.info", ident=ident)
    return line[:-1] + b" " * (size - len(line)) + b"}\n"


def test_a_request_one_byte_at_a_time(wire: Wire) -> None:
    """RPC-2."""
    for byte in INFO:
        wire.send(bytes([byte]))
    assert wire.receive()["result"]["version"] == "0.1.0"


def test_many_requests_in_one_write_are_answered_in_order(wire: Wire) -> None:
    """RPC-2."""
    wire.send(b"".join(encoded("supervisor.info", ident=n) + b"\n" for n in range(500)))
    assert [wire.receive()["id"] for _ in range(500)] == list(range(500))


def test_a_request_split_inside_a_character(wire: Wire) -> None:
    """RPC-2."""
    request = encoded("instance.get", {"name": "ключ"}) + b"\n"
    middle = request.index("ю".encode()) + 1
    wire.send(request[:middle])
    wire.send(request[middle:])
    assert "ключ" in wire.receive()["error"]["message"]


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, (1 << 20) - 1, 1 << 20])
def test_a_large_request_is_taken(wire: Wire, size: int) -> None:
    """RPC-2."""
    wire.send(_padded(size))
    assert "result" in wire.receive()


@pytest.mark.parametrize("size", [(1 << 20) + 1, 5 << 20])
def test_a_request_above_the_limit_ends_its_connection_alone(
    served: Served, wire: Wire, size: int
) -> None:
    """RPC-2."""
    with connected(served.path) as other:
        wire.send(_padded(size))
        answer = wire.receive()
        assert (answer["error"]["code"], answer["id"]) == (rpc.TOO_LARGE, None)
        assert wire.receive() is None
        assert "result" in other.ask("supervisor.info")


def test_a_last_line_that_is_too_long_ends_like_any_other(served: Served, wire: Wire) -> None:
    wire.send(b"x" * ((1 << 20) + 1))
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.receive()["error"]["code"] == rpc.TOO_LARGE
    assert wire.receive() is None


def test_an_endless_line_costs_no_memory(served: Served, wire: Wire) -> None:
    """RPC-2."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunk = b"x" * (1 << 20)
    try:
        for _ in range(40):
            wire.send(chunk)
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert wire.receive()["error"]["code"] == rpc.TOO_LARGE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024


@pytest.mark.parametrize(
    ("line", "code", "ident"),
    [
        (b"{nonsense", rpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","method":"\xff","id":1}', rpc.PARSE_ERROR, None),
        (
            b'{"jsonrpc":"2.0","method":"instance.get","params":{"name":"\xff"},"id":1}',
            rpc.PARSE_ERROR,
            1,
        ),
        (b"[" * 50_000, rpc.PARSE_ERROR, None),
        (b'{"jsonrpc":"1.0","method":"supervisor.info","id":7}', rpc.INVALID_REQUEST, 7),
        (b'{"method":"supervisor.info","id":"a"}', rpc.INVALID_REQUEST, "a"),
        (b'{"jsonrpc":"2.0","method":"supervisor.info","id":1.5}', rpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","method":"supervisor.info","id":1,"x":2}', rpc.INVALID_REQUEST, 1),
        (b"3", rpc.INVALID_REQUEST, None),
        (b"[]", rpc.INVALID_REQUEST, None),
        (encoded("no.such"), rpc.METHOD_NOT_FOUND, 1),
        (encoded("instance.get", ["a"]), rpc.INVALID_PARAMS, 1),
        (encoded("instance.get", {"name": "a", "colour": "red"}), rpc.INVALID_PARAMS, 1),
        (encoded("instance.get", {}), rpc.INVALID_PARAMS, 1),
        (encoded("instance.launch", {"name": "a", "engine": "nope"}), rpc.INVALID_PARAMS, 1),
        (encoded("instance.logs", {"name": "a", "lines": -1}), rpc.INVALID_PARAMS, 1),
        (encoded("event.subscribe", {"kinds": ["no-such"]}), rpc.INVALID_PARAMS, 1),
        (encoded("event.unsubscribe", {"subscription": "s9"}), rpc.INVALID_PARAMS, 1),
        (encoded("instance.get", {"name": "a"}), rpc.NO_SUCH_INSTANCE, 1),
        (encoded("instance.launch", {"name": "a"}), rpc.INVALID_LAUNCH, 1),
    ],
)
def test_what_is_wrong_is_said_and_the_connection_lives(
    wire: Wire, line: bytes, code: int, ident: object
) -> None:
    """RPC-2."""
    wire.send(line + b"\n" + INFO)
    answers = [wire.receive(), wire.receive()]
    wrong = next(answer for answer in answers if "error" in answer)
    assert (wrong["error"]["code"], wrong["id"]) == (code, ident)
    assert any("result" in answer for answer in answers)


def test_an_ill_typed_param_is_named_by_its_path(wire: Wire) -> None:
    params = {"name": "a", "options": {"tensorParallel": "two"}}
    message = wire.ask("instance.launch", params)["error"]["message"]
    assert message == "params: Expected `int`, got `str` - at `$.options.tensorParallel`"


def test_a_defect_in_a_handler_costs_its_own_call_only(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    assert wire.ask("host.profile")["error"]["code"] == rpc.INTERNAL_ERROR
    assert "RuntimeError: a defect" in caplog.text
    assert "result" in wire.ask("supervisor.info")


def test_a_batch_is_answered_as_one(wire: Wire) -> None:
    members = [
        encoded("supervisor.info", ident=1),
        encoded("device.leases", ident=2),
        b'{"jsonrpc":"2.0","method":"supervisor.info"}',
        b"17",
    ]
    wire.send(b" [" + b",".join(members) + b"]\n")
    answers = {answer["id"]: answer for answer in wire.receive()}
    assert set(answers) == {1, 2, None}
    assert answers[None]["error"]["code"] == rpc.INVALID_REQUEST


def test_a_batch_has_a_limit(wire: Wire) -> None:
    wire.send(b"[" + b",".join([encoded("supervisor.info")] * 64) + b"]\n")
    assert len(wire.receive()) == 64
    wire.send(b"[" + b",".join([encoded("supervisor.info")] * 65) + b"]\n")
    assert wire.receive()["error"]["code"] == rpc.TOO_LARGE


def test_notifications_get_no_reply_not_even_an_error(served: Served, wire: Wire) -> None:
    wire.send(b'{"jsonrpc":"2.0","method":"no.such"}\n\n \r\n')
    wire.send(b'[{"jsonrpc":"2.0","method":"supervisor.info"}]\n')
    params = '{"name":"a","engine":"vllm"}'
    wire.send(f'{{"jsonrpc":"2.0","method":"instance.launch","params":{params}}}\n'.encode())
    assert wire.ask("instance.list", ident="last")["id"] == "last"
    # A task of its own: what is answered on the spot overtakes it.
    assert wire.ask("device.leases", ident="later")["id"] == "later"
    assert [params.name for params in served.supervisor.launched] == ["a"]


def test_equal_ids_are_both_answered(wire: Wire) -> None:
    """RPC-2."""
    wire.send(INFO + INFO)
    assert [wire.receive()["id"], wire.receive()["id"]] == [1, 1]


def test_half_closed_a_client_still_gets_its_answers(served: Served, wire: Wire) -> None:
    served.supervisor.slow["a"] = asyncio.Event()
    wire.request("instance.launch", {"name": "a", "engine": "vllm"}, "slow")
    wire.send(INFO[:-1])
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.receive()["id"] == 1
    served.release("a")
    assert wire.receive()["result"]["state"] == "ready"
    assert wire.receive() is None


def test_a_reply_is_whole_whatever_its_size(served: Served, wire: Wire) -> None:
    """RPC-2."""
    served.supervisor.padding = "x" * (5 << 20)
    assert len(wire.ask("supervisor.info")["result"]["paths"]["socket"]) == (5 << 20) + 1


def test_who_does_not_read_is_not_read_from(served: Served, wire: Wire) -> None:
    served.supervisor.padding = "x" * 100_000
    wire.socket.settimeout(1)
    with pytest.raises(TimeoutError):
        wire.send(INFO * 100_000)
    with connected(served.path) as other:
        assert "result" in other.ask("supervisor.info")


def test_requests_of_one_connection_run_beside_each_other(served: Served, wire: Wire) -> None:
    served.supervisor.slow["a"] = asyncio.Event()
    served.supervisor.views["b"] = view("b")
    wire.request("instance.launch", {"name": "a", "engine": "vllm"}, "a")
    assert wire.ask("instance.stop", {"name": "b"}, "b")["id"] == "b"
    for number in range(63):
        wire.request("instance.launch", {"name": "a", "engine": "vllm"}, number)
    refused = wire.ask("instance.stop", {"name": "b"}, "too many")
    assert refused["error"]["code"] == rpc.OVERLOADED
    served.release("a")
    results = [wire.receive() for _ in range(64)]
    assert sum("result" in result for result in results) >= 1


def test_a_client_that_leaves_cancels_no_stop(served: Served) -> None:
    served.supervisor.slow["a"] = asyncio.Event()
    served.supervisor.views["a"] = view("a")
    with connected(served.path) as leaving:
        leaving.request("instance.stop", {"name": "a"})
        leaving.request("instance.wait", {"name": "a", "for": "exited"}, 2)
    deadline = time.monotonic() + 5
    while not served.supervisor.stopped or served.server.connections:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [task.get_name() for task in served.server.tasks] == ["rpc instance.stop"]
    served.release("a")
    while not served.supervisor.finished and time.monotonic() < deadline:
        time.sleep(0.01)
    assert served.supervisor.finished == ["a"]


def test_a_hundred_clients_at_once(served: Served) -> None:
    wires = [Wire(served.path) for _ in range(100)]
    for number, each in enumerate(wires):
        each.request("device.leases", ident=number)
    assert [each.receive()["id"] for each in wires] == list(range(100))
    for each in wires:
        each.close()


def test_a_daemon_that_leaves_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.supervisor.slow["a"] = asyncio.Event()
        wire = Wire(served.path)
        wire.request("instance.launch", {"name": "a", "engine": "vllm"})
        assert "result" in wire.ask("supervisor.info", ident=2)
    answer = wire.receive()
    assert (answer["id"], answer["error"]["code"]) == (1, rpc.UNAVAILABLE)
    assert wire.receive() is None
    wire.close()
    assert not (tmp_path / "engined.sock").exists()


def test_too_many_connections_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, max_connections=1) as served, connected(served.path) as first:
        first.ask("supervisor.info")
        with connected(served.path) as second:
            assert second.receive()["error"]["code"] == rpc.OVERLOADED
            assert second.receive() is None
        assert "result" in first.ask("supervisor.info")


def test_every_reply_is_one_json_line(wire: Wire) -> None:
    wire.send(INFO)
    line = wire.socket.recv(1 << 16)
    assert line.count(b"\n") == 1
    assert json.loads(line)["jsonrpc"] == "2.0"
