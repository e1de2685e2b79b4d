import socket
import threading
from ipaddress import ip_address

import pytest

from supervisor.health.address import AddressError, literal_addresses, probe_addresses


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
        return [(0, 0, 0, "", (address, 0)) for address in answers]

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
