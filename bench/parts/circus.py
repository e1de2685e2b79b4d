"""circus as a peer: its daemon with ``n`` watchers, and a subscriber to what it publishes."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.parts.engine import EngineProgram
from bench.parts.helpers import beside
from bench.parts.news import News
from bench.parts.peers import Peers, end, environment


@dataclass(frozen=True, slots=True)
class Circus:
    """Its watchers are called ``p0``, ``p1``, and so on."""

    pid: int
    began_ns: int
    """When its program was started."""
    pids: dict[str, int]
    news: News


@contextmanager
def circus(
    peers: Peers, folder: Path, engine: EngineProgram, count: int, *, flags: tuple[str, ...] = ()
) -> Iterator[Circus | None]:
    """A running one with its defaults, or ``None`` where it is not installed."""
    program, python = peers.bin("circusd"), peers.bin("python")
    if program is None or python is None:
        yield None
        return
    commands, published = f"ipc://{folder}/c", f"ipc://{folder}/p"
    config = folder / "circus.ini"
    config.write_text(
        f"[circus]\nendpoint = {commands}\npubsub_endpoint = {published}\nstatsd = False\n"
        + "".join(
            f"[watcher:p{number}]\ncmd = {engine.path}\nnumprocesses = 1\n"
            f"args = --stub-life 900 {' '.join(flags)}\ngraceful_timeout = 1\n"
            "close_child_stdout = True\nclose_child_stderr = True\n"
            for number in range(count)
        )
    )
    news = News(folder / "news")
    began_ns = time.monotonic_ns()
    process = subprocess.Popen(
        [program, str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    try:
        with beside(
            "circus_listener.py",
            commands,
            published,
            news.path,
            str(count),
            python=python,
            bare=False,
        ) as listener:
            assert listener.stdout
            pids = json.loads(listener.stdout.readline())
            yield Circus(process.pid, began_ns, pids, news)
    finally:
        end(process)
        news.close()
