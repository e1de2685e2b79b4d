"""What one call costs on a kept connection, with no engine and with many.

The control is an asyncio server that answers any line with as many bytes and does nothing else:
its time is the kernel's and the event loop's, the rest is ours. supervisord answers for as many
programs. Sides take turns in blocks, for a client that asks often meets a warm daemon. Whether the
kernel keeps client and server on one core moves any side by some 40 µs, for as long as both live:
the control is a scale, and not to be subtracted.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from bench.figure import Bound, Figure, Row, row
from bench.parts.daemon import Daemon, daemon
from bench.parts.helpers import beside
from bench.parts.supervisord import supervisord
from bench.parts.wire import Wire, wire
from bench.stage import Stage
from bench.turns import in_turns

INFO = b'{"jsonrpc":"2.0","id":1,"method":"supervisor.info"}\n'
LIST = b'{"jsonrpc":"2.0","id":1,"method":"instance.list"}\n'
BLOCK = 20
TARGET_ENGINES = 200
ECHO, PEER = "echo", "supervisord"


@contextmanager
def echo(path: str, size: int) -> Iterator[Wire]:
    with beside("echo.py", path, str(size)) as server:
        assert server.stdout
        server.stdout.readline()
        with wire(path) as line:
            yield line


def compared(
    stage: Stage,
    own: Daemon,
    request: bytes,
    what: str,
    *bounds: Bound,
    rounds: int,
    peer: Callable[[], float] | None = None,
    notes: Iterable[str] = (),
) -> Row:
    with wire(own.socket) as line:
        size = len(line.ask(request))
        with echo(str(stage.folder / "echo"), size) as control:
            sides: dict[str, Callable[[], float]] = {
                "ours": lambda: line.timed(request),
                ECHO: lambda: control.timed(request),
            }
            samples = in_turns(sides, rounds, block=BLOCK, warm_up=2)
        others = {ECHO: samples[ECHO]}
        if peer is not None:
            others[PEER] = in_turns({PEER: peer}, max(1, rounds // 4), block=5)[PEER]
        return row(what, "ms", samples["ours"], *bounds, beside=others, notes=notes)


def measure(stage: Stage) -> Iterable[Row]:
    engines = stage.pick(tiny=2, quick=20, default=50, full=200)
    rounds = stage.pick(tiny=1, quick=30, default=100)
    own = stage.closing.enter_context(daemon(stage.sub("d"), stage.engine))
    quick = (Bound(stat="p50", limit=0.3), Bound(stat="p99", limit=1))
    whole = (Bound(stat="p50", limit=3),)
    notes: tuple[str, ...] = ()
    if engines < TARGET_ENGINES:
        notes = (f"the design's target is for {TARGET_ENGINES} engines: see --full",)
    yield compared(stage, own, INFO, "`supervisor.info`, no engine", *quick, rounds=rounds)
    own.fill(engines)
    peer = None
    if stage.scale != "tiny":
        peer = stage.closing.enter_context(
            supervisord(stage.peers, stage.sub(PEER), stage.engine, engines)
        )
    yield compared(
        stage,
        own,
        INFO,
        f"`supervisor.info`, {engines} engines",
        *(() if notes else quick),
        rounds=rounds,
        notes=notes,
        peer=None if peer is None else partial(peer.timed, "p0"),
    )
    yield compared(
        stage,
        own,
        LIST,
        f"`instance.list`, {engines} engines",
        *(() if notes else whole),
        rounds=max(1, rounds // 3),
        peer=None if peer is None else peer.timed_all,
    )


FIGURE = Figure(name="rpc", title="RPC latency", measure=measure)
