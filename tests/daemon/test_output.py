"""What engines print, and what of it comes through the daemon: LOG-1 and LOG-2."""

import signal
from pathlib import Path

import msgspec
import psutil
import pytest

from supervisor.client import RpcError
from supervisor.contracts.failure import ExitedEarly
from supervisor.contracts.rpc import LogsParams
from tests.daemon.engined import Engined, stop

FLOOD = 200 << 20
FLOOD_LINE = "stub: one line of a flood of lines that somebody has to keep bounded"


def test_a_flood_behind_endless_lines_stalls_nobody_and_costs_no_memory(engined: Engined) -> None:
    """LOG-1: 300 KB in one line, 20 000 updates of a bar, then 200 MB as fast as it can.

    It is kept in one file here; how a log is rotated under a writer is a matter of its own.
    """
    with engined.config.open("a") as config:
        config.write(f"[logs]\nmax-bytes = {FLOOD * 2}\n")
    client = engined.start()
    client.launch(engined.params("small"))  # what is loaded at the first launch is no growth
    stop(client, "small")
    daemon = psutil.Process(engined.pid)
    before = daemon.memory_info().rss
    binary = engined.stub(output="long-line,bars", flood=FLOOD)
    view = client.launch(engined.params(binary=binary))
    assert view.state == "ready"
    assert Path(view.log_path or "").stat().st_size > FLOOD
    assert daemon.memory_info().rss - before < 32 << 20

    raw = client.raw("instance.logs", LogsParams(name="x", lines=50))
    assert len(raw) < 100_000
    told = client.logs("x", 50).lines
    assert not [line for line in told if "\r" in line]
    whole = [line for line in told if line.startswith("stub: one line")]
    assert len(whole) > 40
    assert set(whole[1:]) == {FLOOD_LINE}  # what the stub wrote last of it may end inside a line
    assert any(line.startswith("stub: listening on") for line in told)
    assert stop(client).state == "exited"


DYING = ("--stub-load", "60", "--stub-exit-after", "0.1")
RAW = (
    b"\x88\n\x00nul\n\xed\xa0\x80 surrogate\n"
    b"\x1b[31mred\x1b[0m \x1b]0;title\x07\n" + "한국어 로그 줄\n".encode() * 100
)


@pytest.fixture
def speaker(engined: Engined) -> str:
    """An engine that prints those bytes first of all."""
    said = engined.folder / "said"
    said.write_bytes(RAW)
    path = engined.folder / "speaker"
    path.write_text(f'#!/bin/sh\ncat {said}\nexec {engined.stub()} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_any_bytes_are_kept_and_every_tail_of_them_can_be_told(
    engined: Engined, speaker: str
) -> None:
    """LOG-2, under LANG=C: the file has the bytes, and a reply has text in whole lines."""
    client = engined.start(LANG="C", LC_ALL="C", PYTHONUTF8="0")
    view = client.launch(engined.params(binary=speaker))
    assert Path(view.log_path or "").read_bytes().startswith(RAW)
    for lines in range(1, 501):
        reply = client.raw("instance.logs", LogsParams(name="x", lines=lines))
        told = msgspec.json.decode(reply)["lines"]
        assert len(told) <= lines
        assert b"\x1b" not in reply
        assert not [line for line in told if any(char < " " for char in line)]
    assert "한국어 로그 줄" in told
    assert "red " in told
    assert told[0] == "\ufffd"
    stop(client)


def test_no_raw_byte_of_a_log_is_in_an_event(engined: Engined, speaker: str) -> None:
    """LOG-2: the tail in a failure is text as well."""
    client = engined.start(LANG="C", LC_ALL="C")
    with pytest.raises(RpcError) as refused:
        client.launch(engined.params(binary=speaker, extra_args=DYING))
    failure = refused.value.failure
    assert isinstance(failure, ExitedEarly)
    assert "한국어 로그 줄" in failure.log_tail
    assert "red" in failure.log_tail
    engined.end(signal.SIGTERM)
    journal = (engined.folder / "log" / "events.jsonl").read_bytes()
    assert b"\\u001b" not in journal
    assert not [byte for byte in journal if byte < 0x20 and byte != 0x0A]
    assert "launch-failed" in engined.story()
