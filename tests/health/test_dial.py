import socket
from ipaddress import ip_address

import anyio
import pytest

from supervisor.health.dial import Connection, dial
from supervisor.health.outcome import Miss
from tests.health.parts import Server, free_port, open_fds, replies

pytestmark = pytest.mark.anyio

LOOPBACK = ip_address("127.0.0.1")


async def test_a_refused_connect_is_told_at_once_and_leaves_nothing() -> None:
    port, before = free_port(), open_fds()
    for _ in range(50):
        with pytest.raises(Miss) as caught:
            await dial(LOOPBACK, port)
        assert caught.value.kind == "refused"
    assert open_fds() == before


async def test_a_connection_knows_its_place() -> None:
    with Server(replies(), "::1") as server:
        connection = await dial(ip_address("::1"), server.port)
        with connection:
            assert connection.place == f"[::1]:{server.port}"


async def test_an_address_without_a_route_is_no_crash() -> None:
    with pytest.raises(Miss) as caught:
        await dial(ip_address("255.255.255.255"), 80)
    assert caught.value.kind == "unreachable"


async def test_a_connect_that_hangs_can_be_cancelled() -> None:
    with Server(replies(), accepts=0, backlog=0) as full:
        before = open_fds()
        with socket.create_connection(("127.0.0.1", full.port)):
            with anyio.move_on_after(0.05) as scope:
                while True:
                    connection = await dial(LOOPBACK, full.port)
                    connection.close()
            assert scope.cancelled_caught
        assert open_fds() == before


class _FromItsOwnPort(Connection):
    """What the kernel does once in some ten thousand connects, every time."""

    def connect_ex(self, address: object) -> int:
        self.bind(address)  # type: ignore[arg-type]
        return super().connect_ex(address)  # type: ignore[arg-type]


async def test_a_probe_that_meets_itself_is_refused_and_gives_the_port_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    monkeypatch.setattr("supervisor.health.dial.Connection", _FromItsOwnPort)
    with pytest.raises(Miss) as caught:
        await dial(LOOPBACK, port)
    assert caught.value.kind == "refused"
    assert "itself" in caught.value.text
    with socket.socket() as engine:
        engine.bind(("127.0.0.1", port))
        engine.listen()
