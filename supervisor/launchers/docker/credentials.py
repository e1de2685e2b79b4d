"""The user's credentials for a registry, from where `docker login` put them.

Read for each pull and kept nowhere. They appear in no event, error or log of ours.
"""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

HUB = "https://index.docker.io/v1/"
"""What Docker's own configuration calls its default registry."""
_HUBS = frozenset({"docker.io", "index.docker.io"})
HELPER_S = 10.0


async def registry_auth(image: str, env: Mapping[str, str]) -> str | None:
    """The value of ``X-Registry-Auth``, or ``None`` where there are no credentials.

    ``env`` says where the configuration is (``DOCKER_CONFIG``, else ``HOME``). What cannot be read
    is as if it were not there: the registry then says what it wants.
    """
    return await anyio.to_thread.run_sync(partial(_auth, image, env), abandon_on_cancel=True)


def registry_of(image: str) -> str:
    """By Docker's rule: the first part is a registry if it looks like a host."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return HUB if first in _HUBS else first
    return HUB


def _host(address: str) -> str:
    """Of an entry of the configuration, as Docker reads it: with a scheme and a path or without."""
    return address.removeprefix("http://").removeprefix("https://").partition("/")[0]


def _auth(image: str, env: Mapping[str, str]) -> str | None:
    folder = env.get("DOCKER_CONFIG") or os.path.join(env.get("HOME", "/"), ".docker")
    try:
        config = json.loads(Path(folder, "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    registry = registry_of(image)
    found = _from_helper(config, registry, env) or _from_file(config, registry)
    if found is None:
        return None
    return base64.urlsafe_b64encode(json.dumps(found).encode()).decode()


def _from_file(config: Any, registry: str) -> dict[str, str] | None:
    auths = config.get("auths") if isinstance(config, dict) else None
    if not isinstance(auths, dict):
        return None
    for name in sorted(auths, key=lambda name: name != registry):  # the very name comes first
        entry = auths[name]
        if not isinstance(entry, dict) or _host(name) != _host(registry):
            continue
        if token := entry.get("identitytoken"):
            return {"identitytoken": str(token), "serveraddress": registry}
        user, password = entry.get("username"), entry.get("password")
        if text := entry.get("auth"):
            try:
                user, _, password = base64.b64decode(text).decode().partition(":")
            except ValueError:
                continue
        if user and password:
            return {
                "username": str(user),
                "password": str(password).rstrip("\0"),
                "serveraddress": registry,
            }
    return None


def _from_helper(config: Any, registry: str, env: Mapping[str, str]) -> dict[str, str] | None:
    """From a program ``docker-credential-NAME``, which the configuration may name."""
    if not isinstance(config, dict):
        return None
    helpers = config.get("credHelpers")
    name = helpers.get(registry) if isinstance(helpers, dict) else None
    name = name or config.get("credsStore")
    if not isinstance(name, str) or "/" in name:
        return None
    try:
        done = subprocess.run(
            [f"docker-credential-{name}", "get"],
            input=registry.encode(),
            capture_output=True,
            env=dict(env),
            timeout=HELPER_S,
            check=True,
        )
        said = json.loads(done.stdout)
        user, secret = str(said["Username"]), str(said["Secret"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None
    if user == "<token>":
        return {"identitytoken": secret, "serveraddress": registry}
    return {"username": user, "password": secret, "serveraddress": registry}
