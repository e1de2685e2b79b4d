import socket
import threading
from ipaddress import ip_address

import anyio
import pytest

from supervisor.health import address
from supervisor.health.address import (
    AddressError,
    Addresses,
    literal_addresses,
    probe_addresses,
)


@pytest.mark.parametrize(
    ("bind_host", "asked"),
    [
        ("0.0.0.0", ["127.0.0.1"]),
        ("", ["127.0.0.1"]),
        ("::", ["::1"]),
        ("[::]", ["::1"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("127.0.0.2", ["127.0.0.2"]),
        ("10.1.2.3", ["10.1.2.3"]),
        ("::1", ["::1"]),
        ("[::1]", ["::1"]),
        ("::ffff:127.0.0.2", ["127.0.0.2"]),
        ("::ffff:0.0.0.0", ["127.0.0.1"]),
        (" 127.0.0.1 ", ["127.0.0.1"]),
        ("localhost", ["127.0.0.1", "::1"]),
        ("LocalHost", ["127.0.0.1", "::1"]),
    ],
)
def test_a_bind_host_leads_to_literal_addresses(bind_host: str, asked: list[str]) -> None:
    assert literal_addresses(bind_host) == tuple(map(ip_address, asked))


@pytest.mark.parametrize("bind_host", ["gpu-7", "example.org", "/run/llama.sock", "1.2.3.4.5"])
def test_anything_else_is_a_name(bind_host: str) -> None:
    assert literal_addresses(bind_host) is None


@pytest.mark.anyio
async def test_a_name_is_resolved_to_every_address_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
        answers = ["10.0.0.1", "10.0.0.1", "0.0.0.0", "::"]
        return [(0, 0, 0, "", (answer, 0)) for answer in answers]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    found = await probe_addresses("gpu-7")
    assert found == tuple(map(ip_address, ["10.0.0.1", "127.0.0.1", "::1"]))


@pytest.mark.anyio
async def test_a_resolver_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(10))
    try:
        with pytest.raises(AddressError, match="not resolved within"):
            await probe_addresses("gpu-7", resolve_s=0.05)
    finally:
        release.set()


@pytest.mark.anyio
@pytest.mark.parametrize("problem", [socket.gaierror(-2, "Name or service not known"), ValueError])
async def test_what_cannot_be_resolved_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def getaddrinfo(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(AddressError, match=r"'/run/llama\.sock' cannot be resolved"):
        await probe_addresses("/run/llama.sock")


class Resolver:
    """Says what it is told to say; ``None`` is a failure."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: str | None = None
        self.asked = 0
        monkeypatch.setattr(socket, "getaddrinfo", self)
        monkeypatch.setattr(address, "AGAIN_S", 0.05)
        monkeypatch.setattr(address, "STALE_S", 0.1)

    def __call__(self, *_: object, **__: object) -> list[tuple[object, ...]]:
        self.asked += 1
        if self.answer is None:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return [(0, 0, 0, "", (self.answer, 0))]


@pytest.mark.anyio
async def test_a_resolver_that_fails_for_a_while_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = Resolver(monkeypatch)
    told: list[str] = []
    where = Addresses("gpu-7", told.append)
    for _ in range(5):
        with pytest.raises(AddressError, match="Temporary failure"):
            await where.known()
    assert (resolver.asked, len(told)) == (1, 1), "it is not asked at each probe"
    await anyio.sleep(0.06)
    with pytest.raises(AddressError):
        await where.known()
    assert (resolver.asked, len(told)) == (2, 1), "and the same is said once"
    resolver.answer = "10.0.0.7"
    await anyio.sleep(0.06)
    assert await where.known() == (ip_address("10.0.0.7"),)
    assert await where.known() == (ip_address("10.0.0.7"),)
    assert resolver.asked == 3


@pytest.mark.anyio
async def test_a_name_that_leads_nowhere_is_looked_up_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch)
    resolver.answer = "10.0.0.7"
    where = Addresses("gpu-7")
    await where.known()
    resolver.answer = "10.0.0.8"
    where.nobody_there()
    assert await where.known() == (ip_address("10.0.0.7"),), "not at each refusal while it loads"
    await anyio.sleep(0.11)
    where.nobody_there()
    assert await where.known() == (ip_address("10.0.0.8"),)
