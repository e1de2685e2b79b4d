"""How long the engine's own ``main`` waits for a launch: what we add to a bare ``Popen``.

Ours counts from the moment before the request is sent to the first statement of the engine, which
notes the time itself; so the daemon's validation, its two durable records, the stub and its gate
are all in it. The control starts the same program with the same arguments, in turns with ours.
"""

import subprocess
import time
from collections.abc import Iterable
from itertools import count

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import daemon, launch_params
from bench.parts.engine import announcements
from bench.stage import Stage
from bench.turns import in_turns
from supervisor.contracts.rpc import StopParams

CONTROL = "Popen"


def measure(stage: Stage) -> Iterable[Row]:
    numbers = count()
    told = stage.closing.enter_context(announcements(stage.folder / "told"))
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine))
    client = stage.closing.enter_context(own.client())
    flags = stage.engine.flags(told)

    def ours() -> float:
        params = launch_params(stage.engine, f"e{next(numbers)}", flags, wait=False)
        began = time.monotonic_ns()
        client.launch(params)
        ran = told.next()
        client.wait(params.name, "ready")
        client.stop(StopParams(name=params.name, grace_ms=1_000))
        return (ran.at_ns - began) / 1e6

    def control() -> float:
        began = time.monotonic_ns()
        process = subprocess.Popen([stage.engine.path, *flags], stdin=subprocess.DEVNULL)
        ran = told.next()
        process.kill()
        process.wait()
        return (ran.at_ns - began) / 1e6

    rounds = stage.pick(tiny=2, quick=20, default=60, full=200)
    samples = in_turns({"ours": ours, CONTROL: control}, rounds, warm_up=2)
    yield row(
        "`instance.launch` sent, until the engine's main",
        "ms",
        samples["ours"],
        Bound(stat="p50", limit=30, beyond=CONTROL),
        beside={CONTROL: samples[CONTROL]},
    )


FIGURE = Figure(name="launch", title="Launch overhead", measure=measure)
