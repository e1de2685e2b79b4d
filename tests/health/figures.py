"""What a probe costs, and how late "ready" is: ``python -m tests.health.figures [loads]``."""

import random
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import anyio

from supervisor.health.probe import Probe
from supervisor.health.sockdiag import server_side
from tests.health.parts import OK, UNAVAILABLE, Child, FdOwner, Says, child_server, free_port
from tests.health.parts import probe_of as probe
from tests.health.test_readiness import lag_ms

ROUNDS = 500


async def cost(name: str, call: Callable[[], Awaitable[object]]) -> None:
    """Wall time and this process's CPU time of one call, in µs."""
    for _ in range(20):
        await call()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(ROUNDS):
        await call()
    each = [
        (end - began) / ROUNDS * 1e6
        for end, began in ((time.perf_counter(), wall), (time.process_time(), cpu))
    ]
    say(f"{name:34} wall {each[0]:7.1f} µs   cpu {each[1]:7.1f} µs")


async def query(sock: socket.socket) -> None:
    server_side(sock)


async def main() -> None:
    async with probe(free_port()) as refused:
        await cost("refused probe", refused.readiness)
    with child_server(UNAVAILABLE) as server:
        await both("503 probe", server)
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            await cost("diag query", lambda: query(sock))
    with child_server(OK) as server:
        await both("200 probe", server)
        async with probe(server.port, owner=Says("ours")) as ready:
            await cost("200 on a kept connection", ready.health)
    loads = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    lags = sorted([await lag_ms(random.uniform(1.9, 2.1)) for _ in range(loads)])
    p95 = lags[min(len(lags) - 1, round(0.95 * len(lags)))]
    say(
        f"first 200 to Ready after 2 s, {loads} loads: "
        f"p50 {statistics.median(lags):.1f} ms, p95 {p95:.1f} ms, max {lags[-1]:.1f} ms"
    )


async def both(name: str, server: Child) -> None:
    owners: dict[str, Says | FdOwner] = {"": Says("ours"), ", /proc walk": FdOwner(server.pid)}
    for suffix, owner in owners.items():
        asking: Probe
        async with probe(server.port, owner=owner) as asking:
            await cost(name + suffix, asking.readiness)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    anyio.run(main)
