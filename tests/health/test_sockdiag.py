"""Against the real kernel: what its socket diagnostics say of both ends of real connections."""

import errno
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from supervisor.health import sockdiag
from supervisor.health.sockdiag import TcpState, Unprovable, own_side, server_side


@contextmanager
def listening(host: str, *, v6only: bool = True, deferred: bool = False) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        if ":" in host:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
        if deferred:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
        listener.bind((host, 0))
        listener.listen()
        yield listener


def inode(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


@pytest.mark.parametrize(
    ("bound", "asked", "v6only"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.2", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::", "::1", True),
        ("::", "::1", False),
        ("::", "127.0.0.1", False),
        ("::ffff:127.0.0.1", "127.0.0.1", False),
        ("0.0.0.0", "::ffff:127.0.0.1", True),
    ],
)
def test_it_finds_the_accepted_socket_and_none_before(bound: str, asked: str, v6only: bool) -> None:
    with listening(bound, v6only=v6only) as listener:
        address = (asked, listener.getsockname()[1])
        with socket.create_connection(address) as ours:
            waiting = server_side(ours)
            assert waiting is not None
            assert (waiting.state, waiting.inode) == (TcpState.ESTABLISHED, 0)
            assert not waiting.closed
            accepted, _ = listener.accept()
            with accepted:
                side = server_side(ours)
                assert side is not None
                assert side.inode == inode(accepted)
                assert side.uid == os.getuid()
                assert not side.closed
            gone = server_side(ours)
            assert gone is not None
            assert gone.closed


def test_the_cgroup_is_that_of_the_server() -> None:
    with listening("127.0.0.1") as listener, socket.create_connection(listener.getsockname()) as c:
        side = server_side(c)
        assert side is not None
        assert side.cgroup is None or side.cgroup > 0


def test_a_deferred_accept_shows_once_data_came() -> None:
    with (
        listening("127.0.0.1", deferred=True) as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        held = server_side(ours)
        assert held is not None
        assert held.state is TcpState.SYN_RECV
        assert not held.closed
        ours.send(b"G")
        accepted, _ = listener.accept()
        with accepted:
            side = server_side(ours)
            assert side is not None
            assert side.inode == inode(accepted)


def test_the_listener_that_the_kernel_answers_for_a_missing_pair_is_not_taken() -> None:
    with listening("127.0.0.1") as listener:
        name = listener.getsockname()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            assert sockdiag._lookup(socket.AF_INET, name, free.getsockname()) is None


def test_a_reset_connection_is_an_error_and_no_verdict() -> None:
    with listening("127.0.0.1") as listener, socket.create_connection(listener.getsockname()) as c:
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        with pytest.raises(OSError, match="not connected"):
            server_side(c)


def test_our_own_end_is_seen_too() -> None:
    with (
        listening("127.0.0.1") as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        side = own_side(ours)
        assert side is not None
        assert side.inode == inode(ours)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.EOPNOTSUPP])
def test_a_refusal_says_why(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(sockdiag, "_ask", lambda _: struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -code))
    with (
        listening("127.0.0.1") as listener,
        socket.create_connection(listener.getsockname()) as ours,
        pytest.raises(Unprovable, match=os.strerror(code)),
    ):
        server_side(ours)


def test_a_system_without_netlink_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        listening("127.0.0.1") as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        monkeypatch.delattr(socket, "AF_NETLINK")
        with pytest.raises(Unprovable, match="netlink"):
            server_side(ours)


def test_a_query_costs_too_little_for_a_thread() -> None:
    with listening("127.0.0.1") as listener, socket.create_connection(listener.getsockname()) as c:
        began = time.perf_counter()
        for _ in range(200):
            server_side(c)
        assert (time.perf_counter() - began) / 200 < 0.001
