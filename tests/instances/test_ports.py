import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.instances.ports import (
    is_free,
    overlaps_ephemeral,
    pick,
    port_state,
    taken_ports,
)
from tests.instances.builders import a_record
from tests.instances.children import as_nobody


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6 loopback")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_ports_of_this_hosts_records_are_taken() -> None:
    records = {
        "a": a_record("a", port=21_001),
        "reserved": a_record("reserved", port=21_002, ref=None),
        "far": a_record("far", port=21_003, node_id="other"),
        "pinned": a_record("pinned", port=0),
    }
    assert taken_ports(records) == {21_001, 21_002}


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "", "localhost"])
def test_a_listener_is_in_the_way_of_its_address_and_of_the_wildcard(
    listener: socket.socket, host: str
) -> None:
    port = listener.getsockname()[1]
    assert port_state(host, port) == "taken"
    listener.close()
    assert port_state(host, port) == "free"


def test_a_listener_is_not_in_the_way_of_another_address(listener: socket.socket) -> None:
    assert is_free("127.0.0.2", listener.getsockname()[1])


@ipv6
@pytest.mark.parametrize("host", ["::1", "::", ""])
def test_ipv6_listeners_count(host: str) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert port_state(host, port) == "taken"
        assert port_state("127.0.0.1", port) == "free"


@ipv6
def test_both_families_are_one_wildcard() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert port_state("::", server.getsockname()[1]) == "taken"
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        assert port_state("127.0.0.1", server.getsockname()[1]) == "taken"


def test_a_listener_that_shares_its_port_is_a_listener() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        assert port_state("127.0.0.1", server.getsockname()[1]) == "taken"


def test_time_wait_is_free(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = listener.accept()
        accepted.close()  # the server's side closes first, and so is the one that waits
        client.recv(1)
    listener.close()
    with socket.socket() as plain, pytest.raises(OSError, match="in use") as caught:
        plain.bind(("127.0.0.1", port))  # as a server would not: this is what TIME_WAIT refuses
    assert caught.value.errno == errno.EADDRINUSE
    assert port_state("127.0.0.1", port) == "free"


def test_an_established_connection_of_a_dead_server_is_free(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)):
        accepted, _ = listener.accept()
        listener.close()
        with accepted:
            assert port_state("127.0.0.1", port) == "free"


def test_a_low_port_without_rights_is_an_answer_of_its_own() -> None:
    limit = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if limit.exists() and int(limit.read_text()) <= 80:
        pytest.skip("here anyone may bind low ports")

    def body() -> None:
        assert port_state("127.0.0.1", 80) == "denied"
        assert not is_free("127.0.0.1", 80)

    as_nobody(body)


@pytest.mark.parametrize("host", ["203.0.113.7", "no such host", "x" * 300, "2001:db8::1"])
def test_an_address_that_is_not_ours(host: str) -> None:
    assert port_state(host, 21_000) == "no-address"


def test_a_port_is_picked_around_the_pool() -> None:
    def free(_: str, port: int) -> bool:
        return port != 12

    taken = frozenset({13})
    order = [pick(10, 14, "h", taken, start=start, free=free) for start in range(10, 15)]
    assert order == [10, 11, 14, 14, 14]
    assert pick(10, 14, "h", frozenset({10, 11, 13, 14}), start=12, free=free) is None
    assert pick(10, 10, "h", frozenset(), free=free) == 10


def test_a_strangers_port_is_passed_over(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert pick(port, port, "127.0.0.1", frozenset()) is None


def test_the_search_begins_anywhere() -> None:
    found = {pick(1, 1000, "h", frozenset(), free=lambda *_: True) for _ in range(50)}
    assert len(found) > 20


@given(
    st.integers(1, 50),
    st.integers(0, 50),
    st.frozensets(st.integers(1, 100)),
    st.none() | st.integers(-200, 200),
)
def test_what_is_picked_is_free_and_of_the_pool(
    first: int, size: int, taken: frozenset[int], start: int | None
) -> None:
    last = first + size
    port = pick(first, last, "h", taken, start=start, free=lambda *_: True)
    if port is None:
        assert taken >= set(range(first, last + 1))
    else:
        assert first <= port <= last
        assert port not in taken


@pytest.mark.parametrize(
    ("first", "last", "overlaps"),
    [
        (21_000, 21_999, False),
        (32_767, 32_767, False),
        (32_767, 32_768, True),
        (40_000, 40_001, True),
        (60_999, 61_000, True),
        (61_000, 61_999, False),
        (1, 65_535, True),
    ],
)
def test_the_kernels_own_range(tmp_path: Path, first: int, last: int, overlaps: bool) -> None:
    source = tmp_path / "range"
    source.write_text("32768\t60999\n")
    assert overlaps_ephemeral(first, last, source) == overlaps


def test_without_the_kernels_word_the_registered_range_counts(tmp_path: Path) -> None:
    assert overlaps_ephemeral(49_000, 50_000, tmp_path / "none")
    assert not overlaps_ephemeral(21_000, 21_999, tmp_path / "none")


def test_the_default_pool_is_outside_of_this_kernels_range() -> None:
    assert not overlaps_ephemeral(21_000, 21_999)
