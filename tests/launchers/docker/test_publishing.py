"""What an inspect proves of a published port, and what it does not."""

from dataclasses import dataclass

import pytest
from msgspec import convert

from supervisor.contracts.instance import DockerHandle, Ownership
from supervisor.launchers.docker.engine import Engine
from supervisor.launchers.docker.facts import Container
from supervisor.launchers.docker.labels import NONCE
from supervisor.launchers.docker.running import DockerRunning
from supervisor.launchers.docker.watch import Watch

ID = "c" * 64


@dataclass
class Seen(Engine):
    """An engine that has one container, which runs and publishes port 21000."""

    port: str = "21000"
    status: str = "running"
    pid: int = 7
    nonce: str = "0"

    def __post_init__(self) -> None:
        super().__init__("/none")

    async def inspect(self, container: str, of: str | None = None) -> Container | None:
        alive = self.status in ("running", "paused")
        state = {"Status": self.status, "Running": alive, "Paused": self.status == "paused"}
        published = {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": self.port}], "1/udp": None}
        said = {
            "Id": ID,
            "Name": "/x",
            "State": {**state, "Pid": self.pid},
            "Config": {"Labels": {NONCE: self.nonce}},
            "NetworkSettings": {"Ports": published},
        }
        return convert(said, Container)


def running(engine: Engine) -> DockerRunning:
    return DockerRunning(Watch(engine, DockerHandle(container=ID), "0"), 1, lambda: None)


@pytest.mark.parametrize(
    ("engine", "answer"),
    [
        (Seen(), "ours"),
        (Seen(port="21001"), "foreign"),
        (Seen(status="paused"), "foreign"),
        (Seen(status="exited"), "foreign"),
        (Seen(nonce="another"), "foreign"),
    ],
)
async def test_the_port_leads_to_our_container_while_it_runs(
    engine: Seen, answer: Ownership
) -> None:
    told = await running(engine).publishes(21000)
    assert told is not None
    assert told[0] == answer


async def test_a_reply_counts_for_the_run_that_was_asked_alone() -> None:
    """One that was started anew between question and answer: nobody knows which of them spoke."""
    engine = Seen()
    container = running(engine)
    assert await container.publishes(21000) == ("ours", "")
    assert await container.publishes(21000, again=True) == ("ours", "")
    engine.pid = 8
    told = await container.publishes(21000, again=True)
    assert told is not None
    assert told[0] == "foreign"
    assert "started anew" in told[1]
