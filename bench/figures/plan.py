"""What the pure ``plan`` of each engine costs: the part of a launch that golden files test.

The control is the cheapest thing that could stand in its place: making the struct that a plan is.
A sample is the mean of a hundred calls, for one is shorter than the clock's own cost is steady.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from bench.figure import Bound, Figure, Row, row
from bench.stage import Stage
from bench.turns import in_turns
from supervisor.contracts.engine import EngineId, LaunchRequest, ServingOptions
from supervisor.contracts.host import SELF, HostProfile
from supervisor.engines.registry import ENGINES

CONTROL = "make the struct"
CALLS = 100

HOST = HostProfile(
    node_id=SELF,
    platform="linux",
    arch="x64",
    accelerator="cuda",
    unified_memory=False,
    wsl=False,
    docker=False,
    docker_gpu=False,
    device_count=2,
)


def request_for(engine: EngineId) -> LaunchRequest:
    """A launch of the usual kind, with some of every sort of parameter."""
    return LaunchRequest(
        engine=engine,
        host=HOST,
        runtime="process",
        devices=("GPU-6fb1a1d2-1f0f-4e61-a2f5-000000000001",),
        port=21_000,
        model_path="/models/some-model-8b.gguf",
        served_model_name="some-model",
        options=ServingOptions(max_context_length=8192, max_concurrent_requests=8),
        extra_args=("--verbose",),
        env={"SOME_VARIABLE": "1"},
        docker_image=None,
        binary="/usr/local/bin/engine",
    )


def mean_of(call: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        return (time.perf_counter_ns() - began) / CALLS / 1_000

    return run


def measure(stage: Stage) -> Iterable[Row]:
    rounds = stage.pick(tiny=3, quick=100, default=300)
    for engine, spec in ENGINES.items():
        request, plan = request_for(engine), spec.plan
        made = plan(request)
        samples = in_turns(
            {
                "ours": mean_of(partial(plan, request)),
                CONTROL: mean_of(partial(replace, made)),
            },
            rounds,
        )
        yield row(
            f"`plan()` of {engine}",
            "µs",
            samples["ours"],
            Bound(stat="p50", limit=50),
            beside={CONTROL: samples[CONTROL]},
        )


FIGURE = Figure(name="plan", title="Planning", measure=measure)
