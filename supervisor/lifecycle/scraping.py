"""``instance.metrics``: an engine's own page, over a proved connection, as five numbers.

A page is asked for when somebody asks us, and at no other time: llama-server's averages count from
one scrape to the next, and are the monitoring's.
"""

import re

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET

from supervisor.contracts.engine import CanonicalMetric, EngineId, MetricMap
from supervisor.contracts.rpc import CanonicalMetrics, MetricsReply
from supervisor.engines.metrics import (
    CANONICAL,
    METRICS_PATH,
    Reading,
    is_exposition,
    read_metrics,
)
from supervisor.health.line import Reply
from supervisor.health.outcome import Miss, printable
from supervisor.lifecycle.instance import Instance

PAGE_BYTES = 2 << 20
"""vLLM's page has 60 KB with one engine behind it; thirty of them stay below this."""
SCRAPE_S = 5.0

_MEMBERS = {
    metric: re.sub("[A-Z]", lambda upper: "_" + upper[0].lower(), metric) for metric in CANONICAL
}
_parsing = anyio.CapacityLimiter(2)


async def scrape(instance: Instance, names: MetricMap) -> MetricsReply:
    """The engine's numbers as of now, or why there are none. Never fails for the engine's sake."""
    name, engine = instance.name, instance.record.engine
    if not any(names.values()):
        return _reply(name, engine, Reading(values={}, unsupported=CANONICAL))
    try:
        page = await _page(instance)
    except Miss as miss:
        return _without(name, engine, instance.redactor.text(miss.text))
    reading = await anyio.to_thread.run_sync(
        lambda: read_metrics(names, page.body.decode("utf-8", "replace"), whole=page.whole),
        limiter=_parsing,
    )
    return _reply(name, engine, reading)


async def _page(instance: Instance) -> Reply:
    if not instance.ready:
        raise Miss("unreachable", "the engine is not ready yet")
    plan = instance.record.supervision.plan if instance.record.supervision else None
    if plan is None:
        raise Miss("unreachable", "the record does not say how the engine is asked")
    # What moves the health path (llama-server's --api-prefix) moves this one as well.
    path = plan.health.path.rpartition("/")[0] + METRICS_PATH
    page = await instance.page(path, limit=PAGE_BYTES, within_s=SCRAPE_S)
    start = page.body[:1024].decode("utf-8", "replace")
    if not 200 <= page.status < 300:
        raise Miss("status", f"GET {path}: HTTP {page.status} {page.reason} {start.strip()}")
    if not is_exposition(start):
        raise Miss("malformed", f"GET {path}: no metrics page came back: {start.strip()}")
    return page


def _without(name: str, engine: EngineId, reason: str) -> MetricsReply:
    nothing: dict[CanonicalMetric, float | None] = {}
    reply = _reply(name, engine, Reading(values=nothing, unsupported=()))
    return msgspec.structs.replace(reply, unavailable=printable(reason))


def _reply(name: str, engine: EngineId, reading: Reading) -> MetricsReply:
    values = {member: reading.values.get(metric) for metric, member in _MEMBERS.items()}
    return MetricsReply(
        name=name,
        engine=engine,
        metrics=CanonicalMetrics(**values),
        unsupported=reading.unsupported,
        bad_lines=reading.bad_lines,
        unavailable=UNSET,
    )
