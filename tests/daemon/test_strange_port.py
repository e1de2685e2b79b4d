"""PID-3: a port that some other program listens on is that program's, whatever is asked of us."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from supervisor.client import RpcError
from supervisor.contracts.failure import SpawnFailed
from supervisor.contracts.rpc import DrainParams
from tests.daemon.engined import Engined, serves, stop
from tests.lifecycle.house import A, free_port

SERVER = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(flush=True)
server.serve_forever()
"""


@contextmanager
def foreign_server(port: int) -> Iterator["subprocess.Popen[bytes]"]:
    argv = [sys.executable, "-c", SERVER, str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"\n"
            yield server
        finally:
            server.kill()


def test_who_holds_the_port_is_named_and_left_alone(engined: Engined) -> None:
    client, port = engined.start(), free_port()
    with foreign_server(port) as server:
        with pytest.raises(RpcError) as refused:
            client.launch(engined.params(port=port))
        failure = refused.value.failure
        assert isinstance(failure, SpawnFailed)
        assert failure.reason == "port-taken"
        assert f"port {port}" in failure.detail
        assert f"(pid {server.pid})" in failure.detail
        assert engined.records() == []
        assert stop(client).failure == failure
        client.drain(DrainParams(grace_ms=0))
        assert {it.device: it.holders for it in client.leases().leases}[A] == ()
        assert server.poll() is None
        assert serves(port)
    assert client.launch(engined.params(port=port)).state == "ready"
    stop(client)
