"""Where an engine will listen, after its own extra arguments and environment had their say.

One answer for the plan, the record and the probe, so that they cannot part (HLT-5). What the probe
could not follow is a problem, and such a launch is refused: several addresses, a Unix socket, or a
port that the engine would take for another one (llama.cpp b11434 reads ``80abc`` as 80 and listens
on 99999 modulo 65536, measured).
"""

import re
from collections.abc import Mapping

from supervisor.contracts.engine import AddressOverride
from supervisor.engines.spelling import Flag, Spelling

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"

_PORT = re.compile(r"[0-9]{1,5}")
_BRACKETS = re.compile(r"\[([^\[\]]*:[^\[\]]*)\]$")


def unbracketed(text: str) -> str:
    """``[::1]`` as ``::1``: brackets belong to URLs, and no engine can bind to them (measured)."""
    return _BRACKETS.sub(r"\1", text)


def address_of(spelling: Spelling, said: Mapping[Flag, str]) -> AddressOverride:
    """The host and port among what a launch says by itself."""
    port_text, host_text = said.get(spelling.port), said.get(spelling.host)
    port: int | None = None
    if port_text is not None:
        port = int(port_text) if _PORT.fullmatch(port_text) else 0
        if not 1 <= port <= 65_535:
            return _problem(spelling, f"{port_text!r} is no port from 1 to 65535")
    if host_text is None:
        return AddressOverride(port=port)
    hosts = [host for part in host_text.split(",") if (host := unbracketed(part.strip()))]
    if len(hosts) != 1:
        return _problem(spelling, f"{host_text!r} must name exactly one address to listen on")
    if hosts[0].endswith(".sock"):
        return _problem(spelling, f"{host_text!r} is a Unix socket; a TCP address is needed")
    return AddressOverride(host=hosts[0], port=port)


def _problem(spelling: Spelling, text: str) -> AddressOverride:
    return AddressOverride(problem=f"{spelling.program}: {text}")
