"""``logs -f`` and ``events -f`` over the death of the daemon."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from supervisor.client import Client
from tests.daemon.engined import SOON, Engined, stop


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_follower_goes_on_over_the_daemons_death(engined: Engined) -> None:
    client = engined.start()
    binary = engined.stub(load=4, loading="refuse", drip=0.02)
    client.launch(replace(engined.params(binary=binary, ready_deadline_ms=30_000), wait=False))
    while client.get("x").log_path is None:
        time.sleep(0.02)
    lines: list[str] = []

    def follow() -> None:
        with Client(client.path) as reader:
            for told in reader.follow("x"):
                lines.extend(told)

    reader = threading.Thread(target=follow)
    reader.start()
    time.sleep(1)
    engined.end(signal.SIGKILL)
    time.sleep(0.5)
    client = engined.start()
    while client.get("x").state != "ready":
        time.sleep(0.05)
    path = client.get("x").log_path
    stop(client)
    reader.join(10)
    assert not reader.is_alive()
    assert path
    written = re.findall(r"tensors (\d+)%", Path(path).read_text())
    assert len(written) > 100
    assert re.findall(r"tensors (\d+)%", "\n".join(lines)) == written


def test_events_go_on_over_the_daemons_death(engined: Engined) -> None:
    """Each number once, and none left out, although the reader never asked again."""
    client = engined.start()
    followed = engined.folder / "followed"
    command = [sys.executable, "-m", "supervisor.cli", "--socket", client.path]
    with (
        followed.open("wb") as out,
        subprocess.Popen([*command, "events", "-f", "--after", "0"], stdout=out) as reader,
    ):
        try:
            until(lambda: " supervisor-started " in followed.read_text())
            for name in ("x", "y"):
                client.launch(engined.params(name, devices=("cpu:0",)))
                engined.end(signal.SIGKILL)
                time.sleep(0.3)
                client = engined.start()
            for name in ("x", "y"):
                stop(client, name)
            until(lambda: followed.read_text().count(" stopped ") == 2)
        finally:
            reader.kill()
    numbers = [int(line.split()[1]) for line in followed.read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))
