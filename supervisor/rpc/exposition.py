"""The supervisor's own metrics, in Prometheus' text format: ``metrics.text``.

Counters count since this daemon started, which is what a scraper expects of a restart. The numbers
are read on the event loop and rendered in a worker thread, where the library is imported too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, get_args

import anyio.to_thread
from msgspec import UNSET, UnsetType

from supervisor.bus import Bus
from supervisor.contracts.instance import InstanceState
from supervisor.contracts.rpc import WriterHealth
from supervisor.lifecycle.api import Supervisor

STATES: tuple[str, ...] = get_args(InstanceState)

Series = tuple[str, str, str, Mapping[tuple[tuple[str, str], ...], float]]
"""Type, name, help, and the values by label set."""

PREFIX = "engine_supervisor_"
_EVENT_COUNTS = {
    "spawned": "Engines started, every attempt counted.",
    "ready": "Engines that became ready.",
    "launch-failed": "Attempts that ended before they were ready.",
    "exited": "Engines that ended by themselves after they had been ready.",
    "restarting": "Restarts, asked for or by policy.",
    "gave-up": "Instances whose restarts came to an end.",
    "unhealthy": "Ready engines that stopped answering.",
}


async def exposition(supervisor: Supervisor, bus: Bus) -> str:
    """The page as of now."""
    info = supervisor.info()
    leases = (await supervisor.leases()).leases
    views = supervisor.list()
    by_engine = Counter((view.record.engine, view.state) for view in views)
    series: list[Series] = [
        (
            "gauge",
            "info",
            "Which supervisor this is.",
            {(("version", info.version), ("supervisor_id", info.supervisor_id)): 1},
        ),
        (
            "gauge",
            "start_time_seconds",
            "When this daemon started, in seconds since the epoch.",
            {(): datetime.fromisoformat(info.started_at).timestamp()},
        ),
        (
            "gauge",
            "instances",
            "Living instances by state.",
            {(("state", state),): info.counts.get(state, 0) for state in STATES},
        ),
        (
            "gauge",
            "engine_instances",
            "Living instances by engine and state.",
            {(("engine", e), ("state", s)): count for (e, s), count in sorted(by_engine.items())},
        ),
        (
            "gauge",
            "instance_up",
            "1 while an instance is ready, else 0.",
            {
                (("name", view.record.name), ("engine", view.record.engine)): view.state == "ready"
                for view in views
            },
        ),
        (
            "gauge",
            "device_holders",
            "Instances that hold a device.",
            {(("device", lease.device),): len(lease.holders) for lease in leases},
        ),
        ("gauge", "event_seq", "Number of the newest event.", {(): bus.cursor.seq}),
        (
            "counter",
            "events",
            "Events published, by kind.",
            {(("kind", kind),): count for kind, count in sorted(bus.published.items())},
        ),
        *_counts(bus.published),
        *_losses({"log": info.log, "journal": info.journal}),
    ]
    return await anyio.to_thread.run_sync(_rendered, series)


def _counts(published: Mapping[str, int]) -> Iterator[Series]:
    for kind, told in _EVENT_COUNTS.items():
        yield "counter", kind.replace("-", "_"), told, {(): published.get(kind, 0)}


def _losses(writers: Mapping[str, WriterHealth | UnsetType]) -> Iterator[Series]:
    for name, health in writers.items():
        if health is not UNSET:
            told = f"Lines of the {name} that could not be written."
            yield "counter", f"{name}_lines_lost", told, {(): health.lost}


def _rendered(series: list[Series]) -> str:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}

    class Page:
        def collect(self) -> Iterator[Metric]:
            for kind, name, told, values in series:
                labels = [label for label, _ in next(iter(values), ())]
                family: Any = families[kind](PREFIX + name, told, labels=labels)
                for pairs, value in values.items():
                    family.add_metric([text for _, text in pairs], float(value))
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Page())
    return generate_latest(registry).decode()
