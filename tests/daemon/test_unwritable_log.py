"""The daemon's own log cannot be written: lines are lost, and nothing else."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from supervisor.client import Client, RpcError
from tests.daemon.engined import PROGRAM, ROOT, Engined, stop
from tests.lifecycle.house import pid_of


@contextmanager
def logging_to(engined: Engined, target: int) -> Iterator[Client]:
    """The daemon with its stderr there."""
    engined.process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--config", str(engined.config)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=target,
    )
    yield engined.answering()


def say_much(client: Client, engined: Engined) -> None:
    """Have it log: refused reloads are told as errors."""
    good = engined.config.read_text()
    engined.config.write_text("nonsense")
    for _ in range(3):
        with pytest.raises(RpcError):
            client.raw("supervisor.reload")
    engined.config.write_text(good)


def lives_and_counts(client: Client, engined: Engined) -> int:
    launched = client.launch(engined.params("a"))
    say_much(client, engined)
    health = client.info().log
    assert health
    assert client.get("a").state == "ready"
    assert pid_of(client.get("a")) == pid_of(launched)
    assert (events := engined.story("a"))[-1] == "ready", events
    return health.lost


def test_a_full_disk_under_the_log(engined: Engined) -> None:
    with open("/dev/full", "wb") as full, logging_to(engined, full.fileno()) as client:
        assert lives_and_counts(client, engined) >= 3
        health = client.info().log
        assert health
        assert health.error == "No space left on device"
        page = client.metrics_text()
        assert f"\nengine_supervisor_log_lines_lost_total {health.lost}.0\n" in page
        stop(client, "a")
        assert engined.end(signal.SIGTERM) == 0


def test_a_reader_of_the_log_that_went_away(engined: Engined) -> None:
    reading, writing = os.pipe()
    with logging_to(engined, writing) as client:
        os.close(writing)
        os.close(reading)
        assert lives_and_counts(client, engined) >= 3
        stop(client, "a")
        assert engined.end(signal.SIGTERM) == 0


def test_a_reader_of_the_log_that_does_not_read(engined: Engined) -> None:
    """A full pipe must not hold the event loop; when it is read again, a line says what is lost."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 1024)
    os.set_blocking(writing, True)
    with logging_to(engined, writing) as client:
        os.close(writing)
        lost = lives_and_counts(client, engined)
        assert lost >= 3
        with os.fdopen(reading, "rb") as pipe:
            os.set_blocking(reading, False)
            while pipe.read(65536):
                pass
            say_much(client, engined)
            told = [json.loads(line) for line in (pipe.read() or b"").splitlines()]
        assert told[0]["event"] == "the log could not be written for a while"
        assert told[0]["lost"] == lost
        assert [it["event"] for it in told[1:]] == ["the configuration was not taken over"] * 3
        health = client.info().log
        assert health
        assert (health.lost, health.error) == (lost, None)
        stop(client, "a")


def test_a_closed_stderr_is_no_file_of_ours(engined: Engined, tmp_path: Path) -> None:
    """The number 2 must not come to be that of a record or of the journal."""
    code = "import os, sys; os.close(2); os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-c", PROGRAM, "--config", str(engined.config)]
    engined.process = subprocess.Popen([sys.executable, "-c", code, *words], cwd=ROOT)
    engined.answering()
    assert os.readlink(f"/proc/{engined.process.pid}/fd/2") == "/dev/null"
