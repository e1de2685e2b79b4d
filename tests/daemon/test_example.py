"""What the pages tell programs to do: the example runs, and the table of errors is whole."""

import os
import re
import subprocess
import sys

import msgspec

from supervisor.contracts import rpc
from supervisor.contracts.event import Event, Ready, Stopped
from tests.daemon.engined import ROOT, Engined
from tests.parts.stub import stub_binary


def test_the_example_launches_listens_and_stops(engined: Engined) -> None:
    engined.start()
    model = engined.folder / "model.gguf"
    model.write_bytes(b"GGUF")
    ran = subprocess.run(
        [sys.executable, ROOT / "examples/client.py", model, stub_binary(engined.folder)],
        env=os.environ | {"ENGINE_SUPERVISOR_SOCKET": str(engined.socket)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert re.fullmatch(r"ready at http://127\.0\.0\.1:\d+, on \S+", lines[0])
    events = [msgspec.json.decode(line, type=Event) for line in lines if line.startswith("{")]
    assert Ready in map(type, events)
    assert isinstance(events[-1], Stopped)


def test_every_error_code_is_in_the_page() -> None:
    codes = {
        value
        for name, value in vars(rpc).items()
        if name.isupper() and isinstance(value, int) and (1100 <= value < 1200 or value < -32000)
    }
    page = (ROOT / "docs/client.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)
    told: set[int] = set()
    for row in rows:
        for part in row.split(","):
            first, _, last = part.partition(" to ")
            if re.fullmatch(r"-?\d+", first.strip()):
                a, b = sorted((int(first), int(last or first)))
                told |= set(range(a, b + 1))
    assert codes
    assert codes <= told
