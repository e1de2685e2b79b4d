"""A server and its probe at an address that is good on one link alone, in a network of their own.

Needs ``unshare -n`` around it. Makes a pair of links, and prints what the probe found.
"""

import subprocess
import sys

import anyio

from supervisor.health.address import Addresses
from supervisor.health.outcome import Outcome
from supervisor.health.probe import Probe
from tests.health.parts import OK, FdOwner, Server, check, replies

ADDRESS = "fe80::77"
LINK = "there"


def make_links() -> None:
    for words in (
        "link set lo up",
        f"link add {LINK} type veth peer name back",
        "link set back up",
        f"link set {LINK} up",
        f"addr add {ADDRESS}/64 dev {LINK} nodad",
    ):
        subprocess.run(["ip", *words.split()], check=True)


async def main() -> None:
    with Server(replies(OK), f"{ADDRESS}%{LINK}") as server:
        async with Probe(Addresses(f"{ADDRESS}%{LINK}"), server.port, check(), FdOwner()) as probe:
            say(await probe.readiness())
            say(await probe.health())
        async with Probe(Addresses(f"{ADDRESS}%nowhere"), server.port, check(), FdOwner()) as probe:
            say(await probe.readiness())


def say(outcome: Outcome) -> None:
    sys.stdout.write(f"{type(outcome).__name__} {outcome.text}\n")


make_links()
anyio.run(main)
