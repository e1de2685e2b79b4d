"""What a person waits for ``enginectl ps``: mostly an interpreter and its imports.

So the controls are the interpreter with nothing to do, and the interpreter that imports asyncio,
which is what a client must not need. supervisorctl asks its own daemon.
"""

import subprocess
import time
from collections.abc import Callable, Iterable, Mapping

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import daemon
from bench.parts.peers import environment
from bench.parts.product import PRODUCT, product_environment
from bench.parts.supervisord import supervisord
from bench.stage import Stage
from bench.turns import in_turns

PASS, ASYNCIO, PEER = "python -c pass", "import asyncio", "supervisorctl"


START = "import sys; from supervisor.cli import main; sys.exit(main())"


def timed(*command: str, env: Mapping[str, str] | None = None) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter_ns()
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=product_environment() if env is None else env,
            check=True,
        )
        return (time.perf_counter_ns() - began) / 1e6

    return run


def measure(stage: Stage) -> Iterable[Row]:
    engines = stage.pick(tiny=1, quick=10, default=20)
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine))
    own.fill(engines)
    sides = {
        "ours": timed(PRODUCT.python, "-c", START, "--socket", own.socket, "ps"),
        PASS: timed(PRODUCT.python, "-c", "pass"),
        ASYNCIO: timed(PRODUCT.python, "-c", "import asyncio"),
    }
    peer = None
    if stage.scale != "tiny":
        peer = stage.closing.enter_context(
            supervisord(stage.peers, stage.sub(PEER), stage.engine, engines)
        )
    control = stage.peers.bin("supervisorctl") if peer else None
    if peer is not None and control is not None:
        sides[PEER] = timed(control, "-c", peer.config, "status", env=environment())
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
