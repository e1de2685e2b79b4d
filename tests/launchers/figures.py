"""What a cgroup costs and saves: ``python -m tests.launchers.figures [rounds]``, as root."""

import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from supervisor.contracts.engine import StopStyle
from supervisor.launchers.process import Cgroups, ProcessLauncher
from supervisor.launchers.process.procfs import NONCE_VARIABLE
from tests.launchers.conftest import Ground, alive, appears
from tests.parts.cgroups import cgroup_place
from tests.parts.stub import stub_binary

ROUNDS = 30
GRACE_S = 0.2


def show(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    median = statistics.median(ordered)
    sys.stdout.write(f"{name:52} median {median * 1e3:7.2f} ms   p95 {p95 * 1e3:7.2f} ms\n")


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


def ground_of(folder: Path, root: Path | None) -> Ground:
    cgroups = Cgroups(root)
    return Ground(folder, ProcessLauncher(cgroups=cgroups), cgroups=cgroups)


async def launches(kind: str, folder: Path, root: Path | None, rounds: int) -> None:
    """From the call to the first line of the engine's program, and until an end is proved."""
    ground = ground_of(folder, root)
    starts, ends = list[float](), list[float]()
    for _ in range(rounds):
        told = folder / "told"
        began = time.monotonic_ns()
        running = await ground.start(
            "sh",
            "-c",
            f"read u r < /proc/uptime; echo $u > {told}.part;"
            f" mv {told}.part {told}; exec sleep 600",
        )
        starts.append((time.monotonic_ns() - began) / 1e9)
        await appears(told)
        told.unlink()
        ends.append(await timed(lambda it=running: it.stop(StopStyle(), 0)))  # type: ignore[misc]
        running.close()
    show(f"{kind}: launch to exec", starts)
    show(f"{kind}: KILL of one process, proved and cleared", ends)


async def stops(kind: str, folder: Path, root: Path | None, rounds: int) -> None:
    """With a detached, deaf grandchild that erased its environment."""
    lags, looks = list[float](), list[float]()
    for _ in range(rounds):
        ground = ground_of(folder, root)
        ground.nonce = uuid.uuid4().hex
        children, up = folder / "children", folder / f"up-{ground.nonce}"
        binary = stub_binary(
            folder,
            health="never",
            up=str(up),
            children="session+detached+deaf+erased",
            children_file=str(children),
        )
        running = await ground.start(binary, env=ground.env | {NONCE_VARIABLE: ground.nonce})
        await appears(up)
        await running.members()
        looks.append(await timed(running.members))
        took = await timed(lambda it=running: it.stop(StopStyle(), int(GRACE_S * 1e3)))  # type: ignore[misc]
        lags.append(took - GRACE_S)
        assert not any(map(alive, map(int, children.read_text().split())))
        running.close()
    show(f"{kind}: members of a tree of two", looks)
    show(f"{kind}: stop, after the escalation, all proved gone", lags)


async def orphaned(kind: str, folder: Path, root: Path | None, rounds: int) -> None:
    ground = ground_of(folder, root)
    running = await ground.start("sh", "-c", "sleep 600 & exit 0")
    await running.wait_exit()
    show(f"{kind}: liveness, leader gone", [await timed(running.liveness) for _ in range(rounds)])
    await running.stop(StopStyle(), 0)
    running.close()


async def joins(root: Path, rounds: int) -> None:
    """Spaced, so that each meets the kernel at rest, as a launch does."""
    cgroups = Cgroups(root)
    show("probe at the start of a daemon", [await timed(cgroups.probe)])
    took = list[float]()
    for number in range(rounds):
        process = await anyio.open_process(["sleep", "600"])
        await anyio.sleep(0.1)
        began = time.perf_counter()
        cgroup = await cgroups.enter(process.pid, "one", f"{number:032}")
        took.append(time.perf_counter() - began)
        assert cgroup
        await anyio.sleep(0.02)
        cgroup.kill()
        await process.wait()
        await cgroup.emptied(1)
        await cgroup.dispose()
    show("mkdir and join, in a thread", took)


async def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with cgroup_place() as root, tempfile.TemporaryDirectory() as place:
        await joins(root, rounds)
        for kind, where in (("plain", None), ("cgroup", root)):
            for part in (launches, stops, orphaned):
                folder = Path(place, f"{kind}-{part.__name__}")
                await anyio.Path(folder).mkdir()
                await part(kind, folder, where, rounds)


if __name__ == "__main__":
    anyio.run(main)
