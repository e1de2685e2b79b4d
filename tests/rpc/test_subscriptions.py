"""Events and logs as notifications, each subscriber at its own pace."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

from supervisor.contracts import rpc
from supervisor.contracts.event import Phase, Warning_
from tests.rpc.fake import Served, view
from tests.rpc.wire import Wire, connected


def _phases(count: int, detail: str = "") -> list[Phase]:
    return [Phase(instance="a", phase=str(number), detail=detail) for number in range(count)]


def _published(served: Served, count: int) -> None:
    _until(lambda: served.bus.cursor.seq >= count)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_new_events_come_after_the_reply(served: Served, wire: Wire) -> None:
    reply = wire.ask("event.subscribe")["result"]
    assert reply == {"subscription": "s1", "cursor": {"epoch": "e", "seq": 0}}
    served.publish(*_phases(3))
    notices = [wire.receive() for _ in range(3)]
    assert [notice["params"]["event"]["phase"] for notice in notices] == ["0", "1", "2"]
    first = notices[0]
    assert (first["method"], first["jsonrpc"]) == ("event", "2.0")
    assert first["params"]["subscription"] == "s1"
    assert first["params"]["event"]["seq"] == 1


def test_a_subscriptions_reply_comes_before_its_events_in_a_batch_too(
    served: Served, wire: Wire
) -> None:
    served.publish(*_phases(2))
    _published(served, 2)
    wire.send(
        b'[{"jsonrpc":"2.0","id":1,"method":"event.subscribe",'
        b'"params":{"after":{"epoch":"e","seq":0}}},'
        b'{"jsonrpc":"2.0","id":2,"method":"device.leases"}]\n'
    )
    assert {answer["id"] for answer in wire.receive()} == {1, 2}
    assert wire.receive()["params"]["event"]["seq"] == 1


def test_a_cursor_brings_what_was_missed(served: Served, wire: Wire) -> None:
    served.publish(*_phases(1000))
    _published(served, 1000)
    reply = wire.ask("event.subscribe", {"after": {"epoch": "e", "seq": 100}})
    assert reply["result"]["cursor"]["seq"] == 1000
    assert [wire.receive()["params"]["event"]["seq"] for _ in range(900)] == [*range(101, 1001)]


def test_kinds_and_instances_choose(served: Served, wire: Wire) -> None:
    wire.ask("event.subscribe", {"kinds": ["ready", "phase"], "instances": ["b"]})
    served.publish(Phase(instance="a", phase="no"), Phase(instance="b", phase="yes"))
    assert wire.receive()["params"]["event"]["phase"] == "yes"


def test_a_cursor_that_is_gone_is_a_typed_error(wire: Wire) -> None:
    for after in ({"epoch": "other", "seq": 0}, {"epoch": "e", "seq": 5}):
        error = wire.ask("event.subscribe", {"after": after})["error"]
        assert error["code"] == rpc.CURSOR_EXPIRED
        assert error["data"] == {"cursor": {"epoch": "e", "seq": 0}}


def test_unsubscribed_nothing_more_comes(served: Served, wire: Wire) -> None:
    wire.ask("event.subscribe")
    assert wire.ask("event.unsubscribe", {"subscription": "s1"})["result"] == {"ok": True}
    served.publish(*_phases(1))
    _published(served, 1)
    assert wire.ask("supervisor.info", ident="next")["id"] == "next"


def test_subscriptions_have_a_limit(wire: Wire) -> None:
    for _ in range(64):
        assert "result" in wire.ask("event.subscribe")
    assert wire.ask("event.subscribe")["error"]["code"] == rpc.OVERLOADED


def test_a_stalled_subscriber_delays_nobody_and_is_told_what_it_lost(
    served: Served, wire: Wire
) -> None:
    wire.ask("event.subscribe")
    with connected(served.path) as fast:
        fast.ask("event.subscribe")
        count = 40_000
        for _ in range(count // 2000):
            served.publish(*_phases(2000, detail="x" * 100))
            for _ in range(2000):
                assert fast.receive()["method"] == "event"
    seen = 0
    while (notice := wire.receive())["method"] == "event":
        assert notice["params"]["event"]["seq"] == seen + 1
        seen += 1
    assert 0 < seen < count
    ended = notice["params"]
    assert ended["error"]["code"] == rpc.CURSOR_EXPIRED
    assert ended["error"]["data"]["cursor"]["seq"] == count
    assert "result" in wire.ask("event.subscribe", {"after": ended["error"]["data"]["cursor"]})


def test_half_closed_a_subscriber_is_still_told_and_its_end_is_noticed(served: Served) -> None:
    with connected(served.path) as quiet:
        quiet.request("event.subscribe")
        quiet.socket.shutdown(socket.SHUT_WR)
        assert "result" in quiet.receive()
        served.publish(*_phases(1))
        assert quiet.receive()["method"] == "event"
    _until(lambda: served.server.connections == 0)


def test_the_end_of_a_log(served: Served, wire: Wire, tmp_path: Path) -> None:
    served.supervisor.views["a"] = view("a")
    (tmp_path / "a.log").write_bytes(b"one\r\ntwo SECRET\nthr\xffee")
    result = wire.ask("instance.logs", {"name": "a", "lines": 2})["result"]
    assert result == {"lines": ["two ***", "thr�ee"], "cursor": 22, "log": "a.log"}


def test_a_log_that_is_not_there_is_empty(served: Served, wire: Wire) -> None:
    served.supervisor.views["a"] = view("a")
    nothing = {"lines": [], "cursor": 0, "log": "a.log"}
    assert wire.ask("instance.logs", {"name": "a"})["result"] == nothing
    assert wire.ask("instance.logs", {"name": "b"})["error"]["code"] == rpc.NO_SUCH_INSTANCE


def test_a_followed_log_goes_on_until_its_instance_ends(
    served: Served, wire: Wire, tmp_path: Path
) -> None:
    served.supervisor.views["a"] = view("a")
    log = tmp_path / "a.log"
    log.write_bytes(b"one\ntw")
    reply = wire.ask("instance.logs", {"name": "a", "follow": True})["result"]
    assert reply == {"lines": ["one"], "cursor": 4, "log": "a.log", "subscription": "s1"}
    with log.open("ab") as more:
        more.write(b"o\nthree\n")
    notice = wire.receive()
    assert notice["method"] == "log"
    assert notice["params"] == {
        "subscription": "s1",
        "lines": ["two", "three"],
        "cursor": 14,
        "log": "a.log",
    }
    log.write_bytes(b"new\n")
    assert wire.receive()["params"]["lines"] == ["new"]
    with log.open("ab") as more:
        more.write(b"last words, no line end SECRET")
    served.supervisor.views["a"] = view("a", "exited")
    assert wire.receive()["params"]["lines"] == ["last words, no line end ***"]
    assert wire.receive() == {
        "method": "subscription.ended",
        "params": {"subscription": "s1"},
        "jsonrpc": "2.0",
    }


def test_a_reader_goes_on_where_it_was_in_an_earlier_attempts_log_too(
    served: Served, wire: Wire, tmp_path: Path
) -> None:
    served.supervisor.views["a"] = view("a")
    (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
    (tmp_path / "earlier.log").write_bytes(b"once\nlast\n")
    place = {"name": "a", "log": "a.log", "after": 4}
    assert wire.ask("instance.logs", place)["result"]["lines"] == ["two"]
    place = {"name": "a", "log": "earlier.log", "after": 5, "follow": True}
    assert wire.ask("instance.logs", place)["result"]["lines"] == []
    told = [wire.receive()["params"] for _ in range(2)]
    assert [(notice["log"], notice["lines"]) for notice in told] == [
        ("earlier.log", ["last"]),
        ("a.log", ["one", "two"]),
    ]
    for strange in ("../a.log", "/etc/passwd", "none.log", "events.jsonl"):
        place = {"name": "a", "log": strange, "after": 4}
        assert wire.ask("instance.logs", place)["result"]["lines"] == ["one", "two"]


def test_a_followed_log_whose_instance_is_forgotten_says_so(served: Served, wire: Wire) -> None:
    served.supervisor.views["a"] = view("a")
    wire.ask("instance.logs", {"name": "a", "follow": True})
    del served.supervisor.views["a"]
    assert wire.receive()["params"]["error"]["code"] == rpc.NO_SUCH_INSTANCE


def _read(wire: Wire, **params: object) -> tuple[list[int], int]:
    """The numbers of the events, and that of the cursor."""
    result = wire.ask("event.read", params)["result"]
    return [event["seq"] for event in result["events"]], result["cursor"]["seq"]


def test_events_can_be_read_page_by_page(served: Served, wire: Wire) -> None:
    served.publish(*_phases(5))
    _published(served, 5)
    assert _read(wire, after={"epoch": "e", "seq": 1}, limit=3) == ([2, 3, 4], 4)
    assert _read(wire, after={"epoch": "e", "seq": 4}) == ([5], 5)
    assert _read(wire, after={"epoch": "e", "seq": 5}) == ([], 5)
    assert _read(wire) == ([], 5)
    expired = wire.ask("event.read", {"after": {"epoch": "gone", "seq": 1}})["error"]
    assert expired["code"] == rpc.CURSOR_EXPIRED
    assert expired["data"]["cursor"] == {"epoch": "e", "seq": 5}
    assert wire.ask("event.read", {"limit": 0})["error"]["code"] == rpc.INVALID_PARAMS


def test_the_newest_events_that_match(served: Served, wire: Wire) -> None:
    """Counted after the filter: the newest warning is found, however much came behind it."""
    warning = Warning_(instance="a", code="fit", detail="")
    served.publish(*_phases(2), warning, *_phases(300), warning, *_phases(400))
    _published(served, 704)
    assert _read(wire, last=2) == ([703, 704], 704)
    assert _read(wire, last=0) == ([], 704)
    assert _read(wire, last=5, kinds=["warning"]) == ([3, 304], 704)
    assert _read(wire, last=1, kinds=["warning"], instances=["a"]) == ([304], 704)
    assert _read(wire, last=1, kinds=["warning"], instances=["b"]) == ([], 704)
    assert _read(wire, after={"epoch": "e", "seq": 3}, kinds=["warning"], limit=1) == ([304], 304)
    assert _read(wire, after={"epoch": "e", "seq": 304}, kinds=["warning"]) == ([], 704)
    for wrong in ({"last": 1, "after": {"epoch": "e", "seq": 1}}, {"last": 1, "kinds": ["no"]}):
        assert wire.ask("event.read", wrong)["error"]["code"] == rpc.INVALID_PARAMS


def test_a_read_waits_for_the_first_event_and_for_no_second(served: Served, wire: Wire) -> None:
    wire.request("event.read", {"waitMs": 10_000})
    assert wire.ask("event.read", {"waitMs": 1}, ident=2)["id"] == 2
    served.publish(*_phases(1))
    reply = wire.receive()
    assert (reply["id"], [event["seq"] for event in reply["result"]["events"]]) == (1, [1])
