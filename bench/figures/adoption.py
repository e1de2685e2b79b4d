"""How long after its exec a daemon that was killed answers again, and for all of its engines.

The socket takes connections from early on and is answered last, when it is known of every record
whether its engine lives: the answer to the first request is READY. Each engine has a device to
itself, so that one too many on any of them would show. The controls are the interpreter with
nothing to do, and with the daemon's imports; what is left is ours.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable

from bench.figure import Bound, Figure, Row, row
from bench.figures.cli import timed
from bench.parts.daemon import Daemon, daemon, pid_of
from bench.parts.product import PRODUCT
from bench.parts.wire import Wire
from bench.stage import Stage

PASS, IMPORTS = "python -c pass", "its imports"
INFO = b'{"jsonrpc":"2.0","id":1,"method":"supervisor.info"}\n'
TARGET_ENGINES = 200
PATIENCE_S = 30.0
RETRY_S = 0.002


def ready(own: Daemon) -> tuple[float, int]:
    """Start it; milliseconds to its first answer, and how many ready engines that told of."""
    began = time.perf_counter_ns()
    own.begin()
    while True:
        try:
            line = Wire(own.socket)
            break
        except (ConnectionError, FileNotFoundError):
            if own.ended() or time.perf_counter_ns() - began > PATIENCE_S * 1e9:
                raise RuntimeError("engined did not start") from None
            time.sleep(RETRY_S)
    try:
        answer = line.ask(INFO)
    finally:
        line.close()
    taken = (time.perf_counter_ns() - began) / 1e6
    return taken, json.loads(answer)["result"]["counts"].get("ready", 0)


class Restarts:
    """Kills and starts one daemon, and holds what it says against what was there before."""

    def __init__(self, own: Daemon, engines: int) -> None:
        self._own = own
        self._pids = own.fill(engines)
        self._leases = self._held()
        self._told = self._count(0)
        self.not_adopted = self.relaunched = self.double = 0

    def once(self) -> float:
        own = self._own
        own.kill()
        taken, counted = ready(own)
        before = self._told
        self._told = self._count(before["adopted"] + len(self._pids))
        adopted = self._told["adopted"] - before["adopted"]
        self.not_adopted += 2 * len(self._pids) - counted - adopted
        with own.client() as client:
            now = {view.record.name: pid_of(view) for view in client.list().instances}
        changed = sum(now.get(name) != pid for name, pid in self._pids.items())
        self.relaunched += changed + self._told["spawned"] - before["spawned"]
        held = self._held()
        self.double += sum(len(names) > 1 for names in held.values())
        self.double += sum(held.get(device) != names for device, names in self._leases.items())
        return taken

    def _held(self) -> dict[str, list[str]]:
        with self._own.client() as client:
            leases = client.leases().leases
        return {one.device: [holder.name for holder in one.holders] for one in leases}

    def _count(self, adopted: int) -> Counter[str]:
        """Kinds of events in the journal, as soon as so many adoptions are."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with self._own.events.open("rb") as lines:
                counts = Counter(str(json.loads(line)["kind"]) for line in lines)
            if counts["adopted"] >= adopted or time.monotonic() > deadline:
                return counts
            time.sleep(0.01)


def measure(stage: Stage) -> Iterable[Row]:
    engines = stage.pick(tiny=3, quick=30, default=50, full=TARGET_ENGINES)
    rounds = stage.pick(tiny=1, quick=2, default=10, full=15)
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine, devices=engines))
    restarts = Restarts(own, engines)
    samples: dict[str, list[float]] = {"ours": [], PASS: [], IMPORTS: []}
    sides = {
        "ours": restarts.once,
        PASS: timed(PRODUCT.python, "-c", "pass"),
        IMPORTS: timed(PRODUCT.python, "-c", "import supervisor.daemon.main"),
    }
    for turn in range(rounds + 1):
        for name, side in sides.items():
            taken = side()
            if turn:
                samples[name].append(taken)
    whole = engines >= TARGET_ENGINES
    bounds = (Bound(stat="p50", limit=500),) if whole else ()
    yield row(
        f"daemon killed with {engines} engines: exec, until it answers for all of them",
        "ms",
        samples.pop("ours"),
        *bounds,
        beside=samples,
        notes=() if whole else (f"the design's target is for {TARGET_ENGINES}: see --full",),
    )
    none = Bound(stat="most", limit=0)
    for what, number in (
        ("not adopted", restarts.not_adopted),
        ("relaunched", restarts.relaunched),
        ("devices with another holder, or two", restarts.double),
    ):
        yield row(f"{rounds + 1} restarts with {engines} engines: {what}", "", [number], none)


FIGURE = Figure(name="adoption", title="Adoption after a kill", measure=measure)
