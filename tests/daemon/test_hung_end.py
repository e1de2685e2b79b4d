"""A thread that hangs in the kernel holds up neither the end of the daemon nor the next one."""

import fcntl
import os
import signal
import time
from pathlib import Path

import pytest

from supervisor.client import ClientError
from tests.daemon.engined import Engined, serves, stop

ENDS_WITHIN_S = 8.0
"""One second is what threads get; the rest is for a machine that has other things to do."""


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """Another host, of whose memory nothing can be read: a fifo to which nobody writes."""
    hardware = tmp_path / "hardware"
    (hardware / "proc").mkdir(parents=True)
    os.mkfifo(hardware / "proc" / "meminfo")
    return hardware


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda it: it.name)
def test_the_end_waits_for_no_thread_that_hangs(
    engined: Engined, stuck: Path, number: signal.Signals
) -> None:
    client = engined.start()
    view = client.launch(engined.params())
    engined.end(signal.SIGTERM)

    client = engined.start(HARDWARE=str(stuck))
    with pytest.raises(ClientError):
        client.raw("device.snapshot", timeout=1.0)
    began = time.monotonic()
    assert engined.end(number) == 0
    assert time.monotonic() - began < ENDS_WITHIN_S
    # All that the end is for was done before: said, written, let go.
    assert engined.events()[-1]["kind"] == "supervisor-stopping"
    assert "threads hang" in engined.stderr.read_text()
    with (engined.folder / "state" / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert serves(view.record.port)

    client = engined.start()
    assert client.get("x").state == "ready"
    seqs = [it["seq"] for it in engined.events()]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert stop(client).state == "exited"


def test_an_end_without_hung_threads_takes_no_grace(engined: Engined) -> None:
    client = engined.start()
    client.launch(engined.params())
    stop(client)
    engined.end(signal.SIGTERM)
    assert "threads hang" not in engined.stderr.read_text()
