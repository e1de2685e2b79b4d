"""Roles: what a uid may do."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.contracts import rpc
from supervisor.contracts.config import AccessConfig
from supervisor.rpc.peers import Role, peer_uid, role_of
from tests.rpc.fake import serving

NOBODY = 65_534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

_ASK = """
import os, socket, sys
folder, name = os.path.split(sys.argv[1])
os.chdir(folder)  # as root: another run of pytest may close the folders above at any moment
os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.connect(name)
try:
    s.sendall(sys.argv[2].encode() + b"\\n")
    s.shutdown(socket.SHUT_WR)
except OSError:
    pass
try:
    while chunk := s.recv(65536):
        sys.stdout.buffer.write(chunk)
except ConnectionResetError:
    pass  # it closed without having read what was asked
"""


def _as_nobody(directory: Path, access: AccessConfig, method: str, params: Any = None) -> Any:
    """What uid 65534 is answered. Its interpreter starts as root, for it must find its modules."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    with serving(directory, access) as served:
        os.chmod(served.path, 0o666)
        os.chmod(directory, 0o711)
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _ASK, served.path, json.dumps(request)],
            capture_output=True,
            timeout=30,
            check=True,
        )
    return json.loads(done.stdout)


def test_the_kernel_says_who_is_there() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert peer_uid(left) == os.geteuid()


def test_roles_come_from_the_config_and_the_highest_counts() -> None:
    access = AccessConfig(read=(10, 11), operate=(11, 12), admin=(12,))
    assert role_of(10, access) is Role.READ
    assert role_of(11, access) is Role.OPERATE
    assert role_of(12, access) is Role.ADMIN
    assert role_of(0, access) is role_of(os.geteuid(), access) is Role.ADMIN
    assert role_of(13, access) is role_of(None, access) is None


def _access(role: str) -> AccessConfig:
    return msgspec.convert({role: [NOBODY]}, AccessConfig)


@as_root
def test_another_uid_is_refused_with_a_reason(tmp_path: Path) -> None:
    """RPC-4."""
    answer = _as_nobody(tmp_path, AccessConfig(), "supervisor.info")
    assert answer["error"]["code"] == rpc.FORBIDDEN
    assert "uid 65534" in answer["error"]["message"]


@as_root
@pytest.mark.parametrize(
    ("role", "method", "params", "allowed"),
    [
        ("read", "instance.list", None, True),
        ("read", "instance.launch", {"name": "a", "engine": "vllm"}, False),
        ("read", "instance.stop", {"name": "a"}, False),
        # What is within its bounds is lifecycle's to say: the fake one has nothing within them.
        ("read", "engine.plan", {"name": "a", "engine": "vllm"}, False),
        ("operate", "engine.plan", {"name": "a", "engine": "vllm"}, False),
        ("operate", "instance.launch", {"name": "a", "engine": "vllm"}, False),
        ("operate", "supervisor.drain", None, True),
        ("admin", "engine.plan", {"name": "a", "engine": "vllm"}, True),
        ("admin", "instance.launch", {"name": "a", "engine": "vllm"}, True),
    ],
)
def test_a_role_may_do_what_it_may(
    tmp_path: Path, role: str, method: str, params: Any, allowed: bool
) -> None:
    answer = _as_nobody(tmp_path, _access(role), method, params)
    assert ("result" in answer) is allowed
    if not allowed:
        assert answer["error"]["code"] == rpc.FORBIDDEN
