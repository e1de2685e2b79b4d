"""``enginectl logs -f`` over the death of the daemon."""

import re
import signal
import threading
import time
from pathlib import Path

from msgspec.structs import replace

from supervisor.client import Client
from tests.daemon.engined import Engined, stop


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
