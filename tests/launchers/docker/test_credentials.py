"""What `docker login` left is what a registry is told, and nobody else."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.launchers.docker.credentials import HUB, registry_auth, registry_of

pytestmark = pytest.mark.anyio


async def told(image: str, folder: Path, **env: str) -> Any:
    value = await registry_auth(image, {"DOCKER_CONFIG": str(folder), **env})
    return None if value is None else json.loads(base64.urlsafe_b64decode(value))


def configured(folder: Path, **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def basic(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("busybox", HUB),
        ("vllm/vllm-openai:v0.33.0", HUB),
        ("docker.io/vllm/vllm-openai:v0.33.0", HUB),
        ("index.docker.io/library/busybox", HUB),
        ("ghcr.io/ggml-org/llama.cpp:server", "ghcr.io"),
        ("localhost/x", "localhost"),
        ("host:5000/x@sha256:0", "host:5000"),
    ],
)
def test_the_registry_of_a_reference(image: str, registry: str) -> None:
    """By the rule of the reference's grammar: a first part with a dot, a colon or ``localhost``."""
    assert registry_of(image) == registry


async def test_a_login_is_used_for_its_own_registry_alone(tmp_path: Path) -> None:
    configured(tmp_path, auths={"ghcr.io": basic("me", "s3:cret"), HUB: basic("hub", "other")})
    assert await told("ghcr.io/a/b:1", tmp_path) == {
        "username": "me",
        "password": "s3:cret",
        "serveraddress": "ghcr.io",
    }
    assert (await told("busybox", tmp_path))["username"] == "hub"
    assert await told("quay.io/a/b", tmp_path) is None


@pytest.mark.parametrize("name", ["https://ghcr.io", "https://ghcr.io/v2/", "http://ghcr.io/v1/"])
async def test_an_address_with_its_scheme_and_path(tmp_path: Path, name: str) -> None:
    """As `docker login https://ghcr.io/v2/` writes it, and Docker's own client finds it."""
    configured(tmp_path, auths={name: basic("me", "s3cret"), "ghcr.io.evil": basic("no", "no")})
    assert (await told("ghcr.io/a", tmp_path))["password"] == "s3cret"
    assert await told("evil/a:ghcr.io", tmp_path) is None


async def test_the_very_name_comes_before_its_other_spellings(tmp_path: Path) -> None:
    auths = {"https://ghcr.io/v1/": basic("old", "old"), "ghcr.io": basic("me", "s3cret")}
    configured(tmp_path, auths=auths)
    assert (await told("ghcr.io/a", tmp_path))["username"] == "me"


async def test_the_hub_by_its_own_name(tmp_path: Path) -> None:
    configured(tmp_path, auths={HUB: basic("me", "s3cret")})
    assert (await told("docker.io/library/x", tmp_path))["serveraddress"] == HUB


async def test_an_identity_token(tmp_path: Path) -> None:
    configured(tmp_path, auths={"ghcr.io": basic("me", "") | {"identitytoken": "t0ken"}})
    assert await told("ghcr.io/a", tmp_path) == {
        "identitytoken": "t0ken",
        "serveraddress": "ghcr.io",
    }


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("me", {"username": "me", "password": "s3cret", "serveraddress": "ghcr.io"}),
        ("<token>", {"identitytoken": "s3cret", "serveraddress": "ghcr.io"}),
    ],
)
@pytest.mark.parametrize("how", ["credHelpers", "credsStore"])
async def test_a_helper_is_asked(
    tmp_path: Path, how: str, user: str, expected: dict[str, str]
) -> None:
    """By the protocol of docker-credential-helpers: the registry on stdin, JSON on stdout."""
    helper = tmp_path / "docker-credential-vault"
    helper.write_text(
        f'#!/bin/sh\nread -r registry\n[ "$1 $registry" = "get ghcr.io" ] || exit 1\n'
        f'echo \'{{"ServerURL":"ghcr.io","Username":"{user}","Secret":"s3cret"}}\'\n'
    )
    helper.chmod(0o755)
    configured(tmp_path, **{how: {"ghcr.io": "vault"} if how == "credHelpers" else "vault"})
    assert await told("ghcr.io/a", tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin") == expected


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"auths": 3}', '{"auths": {"ghcr.io": {"auth": "!"}}}', '{"credsStore": 3}'],
)
async def test_what_cannot_be_read_is_as_if_it_were_not_there(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert await told("ghcr.io/a", tmp_path) is None
    assert await registry_auth("ghcr.io/a", {"HOME": "/nowhere"}) is None


async def test_a_helper_that_is_missing_or_fails(tmp_path: Path) -> None:
    configured(tmp_path, credsStore="absent")
    assert await told("ghcr.io/a", tmp_path, PATH=str(tmp_path)) is None
    (tmp_path / "docker-credential-absent").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker-credential-absent").chmod(0o755)
    assert await told("ghcr.io/a", tmp_path, PATH=f"{tmp_path}:/bin") is None
