"""What a person waits for ``enginectl ps``: mostly an interpreter and its imports.

So the controls are the interpreter with nothing to do, and the interpreter that imports asyncio,
which is what a client must not need. supervisorctl asks its own daemon.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.figure import Bound, Figure, Row, Skip, row
from bench.parts.daemon import daemon
from bench.parts.peers import environment
from bench.parts.supervisord import supervisord
from bench.stage import Stage
from bench.turns import in_turns

PASS, ASYNCIO, PEER = "python -c pass", "import asyncio", "supervisorctl"


def timed(*command: str) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter_ns()
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment(),
            check=True,
        )
        return (time.perf_counter_ns() - began) / 1e6

    return run


def measure(stage: Stage) -> Iterable[Row]:
    enginectl = Path(sys.executable).with_name("enginectl")
    if not enginectl.exists():
        raise Skip(f"there is no {enginectl}; install the project into its venv")
    engines = stage.pick(tiny=1, quick=10, default=20)
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine))
    own.fill(engines)
    sides = {
        "ours": timed(str(enginectl), "--socket", own.socket, "ps"),
        PASS: timed(sys.executable, "-c", "pass"),
        ASYNCIO: timed(sys.executable, "-c", "import asyncio"),
    }
    peer = None
    if stage.scale != "tiny":
        peer = stage.closing.enter_context(
            supervisord(stage.peers, stage.sub(PEER), stage.engine, engines)
        )
    control = stage.peers.bin("supervisorctl") if peer else None
    if peer is not None and control is not None:
        sides[PEER] = timed(control, "-c", peer.config, "status")
    rounds = stage.pick(tiny=2, quick=5, default=20, full=50)
    samples = in_turns(sides, rounds, warm_up=2)
    ours = samples.pop("ours")
    yield row(
        f"`enginectl ps`, {engines} engines",
        "ms",
        ours,
        Bound(stat="p50", limit=120),
        beside=samples,
    )


FIGURE = Figure(name="cli", title="CLI time", measure=measure)
