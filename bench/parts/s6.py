"""s6 as a peer: ``s6-svscan`` over ``n`` services, and a listener to what their supervisors tell.

Each service has a supervising process of its own. Orders go into its control FIFO, as ``s6-svc``
puts them there, without the start of a program for each.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.parts.cost import supervisors
from bench.parts.engine import EngineProgram
from bench.parts.helpers import beside
from bench.parts.news import News
from bench.parts.peers import Peers, end, environment

START_S = 20.0
UP = b"u"


@dataclass(frozen=True, slots=True)
class S6:
    """Its services are called ``p0``, ``p1``, and so on."""

    pid: int
    scan: Path
    count: int
    news: News

    def start_all(self) -> None:
        """Returns before they run."""
        for number in range(self.count):
            control = os.open(self._supervise(number) / "control", os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(control, UP)
            finally:
                os.close(control)

    @contextmanager
    def told(self) -> Iterator[dict[str, int]]:
        """The pids of all services, with a listener that passes their deaths on to ``news``."""
        with beside("s6_listener.py", str(self.scan), self.news.path, str(self.count)) as listener:
            assert listener.stdout
            pids: dict[str, int] = json.loads(listener.stdout.readline())
            yield pids

    def _supervise(self, number: int) -> Path:
        return self.scan / f"p{number}" / "supervise"

    def until_supervised(self) -> None:
        """Return once every service has its supervisor."""
        deadline = time.monotonic() + START_S
        for number in range(self.count):
            while not (self._supervise(number) / "status").exists():
                if time.monotonic() > deadline:
                    raise RuntimeError(f"s6 does not supervise p{number}")
                time.sleep(0.005)


@contextmanager
def s6(
    peers: Peers,
    folder: Path,
    engine: EngineProgram,
    count: int,
    *,
    flags: tuple[str, ...] = (),
    autostart: bool = True,
) -> Iterator[S6 | None]:
    """A running one, or ``None`` where it is not installed. Without ``autostart`` its services wait
    for ``start_all``.
    """
    if not peers.s6():
        yield None
        return
    scan = folder / "scan"
    scan.mkdir()
    words = " ".join((engine.path, "--stub-life", "900", *flags))
    for number in range(count):
        service = scan / f"p{number}"
        service.mkdir()
        (service / "run").write_text(f"#!{shutil.which('execlineb')} -P\n{words}\n")
        (service / "run").chmod(0o755)
        if not autostart:
            (service / "down").touch()
    news = News(folder / "news")
    process = subprocess.Popen(
        ["s6-svscan", "-c", str(max(count, 2) + 100), str(scan)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    one = S6(process.pid, scan, count, news)
    try:
        one.until_supervised()
        yield one
    finally:
        _end(process, engine)
        news.close()


def _end(process: subprocess.Popen[bytes], engine: EngineProgram) -> None:
    """The supervisors too, whose arguments do not tell the stage's sweep whose they are."""
    with ExitStack() as closing:
        pidfds = []
        for pid in supervisors(process.pid, engine.path):
            with suppress(OSError):
                pidfds.append(os.pidfd_open(pid))
                closing.callback(os.close, pidfds[-1])
        end(process)
        for pidfd in pidfds:
            with suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
