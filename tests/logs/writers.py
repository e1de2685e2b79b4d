"""Engines that do nothing but write: numbered lines, as fast as a process can."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WRITER = """
import os, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
last, pause = int(sys.argv[2]), float(sys.argv[3])
for number in range(last):
    os.write(log, b"line %09d of what an engine has to say %s\\n" % (number, b"x" * (number % 97)))
    if pause and number % 100 == 0:
        time.sleep(pause)
"""


def numbered(path: Path, begin: int, end: int) -> None:
    """Lines of the writer's kind, appended by ourselves."""
    with open(path, "ab", buffering=0) as log:
        log.write(b"".join(line(number) for number in range(begin, end)))


def line(number: int) -> bytes:
    return b"line %09d of what an engine has to say %s\n" % (number, b"x" * (number % 97))


@contextmanager
def writing(path: Path, lines: int, pause: float = 0) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-S", "-c", WRITER, path, str(lines), str(pause)])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def files_of(path: Path) -> list[Path]:
    """Oldest first, as somebody with `cat` has them."""
    archives = [entry for entry in path.parent.iterdir() if entry.name.startswith(f"{path.name}.")]
    archives.sort(key=lambda entry: int(entry.suffix[1:]), reverse=True)
    return [*archives, path]


def numbers(files: list[Path]) -> list[int]:
    found: list[int] = []
    for file in files:
        for text in file.read_bytes().splitlines():
            if text.startswith(b"line "):
                number = int(text.split()[1])
                assert text + b"\n" == line(number), text
                found.append(number)
            else:
                assert text.startswith(b"==== engine-supervisor"), text
    return found


def can_collapse(folder: Path) -> bool:
    from supervisor.logs.collapse import can_collapse

    with open(folder / "probe", "wb") as probe:
        answer = can_collapse(probe.fileno())
    os.unlink(folder / "probe")
    return answer
