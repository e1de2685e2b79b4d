"""One short question to the container engine, with what the standard library has. Blocks.

For the daemon's start, and for hosts on which no engine ever runs in a container: the real client
takes half a second to import.
"""

import json
import socket
from typing import Any

from supervisor.launchers.docker.engine import EngineDown, EngineRefused

ASK_S = 2.0
MOST_BYTES = 16 << 20


def ask(
    path: str,
    what: str,
    method: str = "GET",
    within_s: float = ASK_S,
    body: bytes | None = None,
) -> Any:
    """The answer's JSON, or its text. Raises ``EngineDown`` and ``EngineRefused``."""
    import http.client  # and with it all of email, which the daemon's start can do without

    connection = http.client.HTTPConnection("localhost", timeout=within_s)
    try:
        connection.sock = _connected(path, within_s)
        connection.request(method, what, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read(MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise EngineDown(f"no container engine answers at {path}: {error}") from error
    finally:
        connection.close()
    try:
        said = json.loads(text) if text else None
    except ValueError:
        said = text.decode(errors="replace")
    if reply.status >= 400:
        message = said.get("message") if isinstance(said, dict) else said
        raise EngineRefused(reply.status, str(message))
    return said


def _connected(path: str, within_s: float) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(within_s)
    try:
        link.connect(path)
    except BaseException:
        link.close()
        raise
    return link
