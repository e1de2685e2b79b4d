"""An address of one link alone, such as an engine may be bound to on a cluster's own network."""

import os
import shutil
import subprocess
import sys

import pytest

UNSHARE = ["unshare", "--net"]


def made_of_its_own() -> list[str]:
    """How to have a network of one's own here."""
    why = ""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        why = "needs ip (iproute2) and unshare (util-linux)"
    elif subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode:
        why = "this user may not make a network namespace"
    if why and os.environ.get("ENGINE_SUPERVISOR_REQUIRE_PARTS"):
        pytest.fail(why)
    if why:
        pytest.skip(why)
    return UNSHARE


def test_an_engine_at_a_link_local_address_is_proved_to_be_ready() -> None:
    command = [*made_of_its_own(), sys.executable, "-m", "tests.health.link"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    ready, healthy, nowhere = said.splitlines()
    assert ready.startswith("Ready ")
    assert healthy.startswith("Ready ")
    assert nowhere.startswith("NotReady ")
    assert "no interface" in nowhere
