"""``ps``, ``devices`` and ``engines``: tables of what there is."""

import argparse

from msgspec import UNSET

from supervisor.cli.context import Add, Context
from supervisor.cli.text import (
    NOT_KNOWN,
    UNSUPPORTED,
    age,
    printable,
    say,
    table,
    until,
    warn,
)
from supervisor.contracts.failure import (
    ExitedEarly,
    LaunchFailure,
    SpawnFailed,
    UnhealthyTimeout,
)
from supervisor.contracts.instance import InstanceView, PinnedHandle, ProcessHandle
from supervisor.contracts.rpc import (
    DetectedEngine,
    DetectReply,
    EngineEntry,
    EngineListing,
    InstanceListing,
    ListParams,
    MetricsReply,
    MetricsText,
    NameParams,
)

_SHOWN_DEVICES = 2


def add_commands(add: Add) -> None:
    ps = add("ps", "List the instances.", run=list_instances)
    ps.add_argument("-a", "--all", action="store_true", help="ended ones too")
    add("detect", "Show the engines among this host's processes.", run=detect)
    metrics = add(
        "metrics", "Show an engine's load, or the supervisor's own metrics.", run=show_metrics
    )
    metrics.add_argument("name", metavar="NAME", nargs="?", help="without it: the supervisor's own")
    add("engines", "Show the engines, and whether they run here.", run=list_engines)


def list_instances(context: Context, args: argparse.Namespace) -> int:
    reply = context.client.raw("instance.list", ListParams(all=args.all))
    return context.show(reply, InstanceListing, _show_instances)


def list_engines(context: Context, args: argparse.Namespace) -> int:
    return context.show(context.client.raw("engine.list"), EngineListing, _show_engines)


def detect(context: Context, args: argparse.Namespace) -> int:
    return context.show(context.client.raw("engine.detect"), DetectReply, _show_detected)


def _show_detected(reply: DetectReply) -> None:
    head = ("PID", "ENGINE", "INSTANCE", "PORT", "DEVICES", "USER", "MODEL")
    say(table(head, map(_detected, reply.engines)))
    if reply.unreadable:
        warn(f"{reply.unreadable} processes of other users could not be looked at")


def _detected(found: DetectedEngine) -> tuple[str, ...]:
    ports = found.listening or ((found.port,) if found.port else ())
    masks = NOT_KNOWN if found.masks is None else " ".join(map("=".join, found.masks.items()))
    return (
        str(found.pid),
        found.engine,
        found.instance or "-",
        ",".join(map(str, ports)) or "-",
        _devices(found.devices) if found.devices else masks or "-",
        found.user or NOT_KNOWN,
        found.model or NOT_KNOWN,
    )


def show_metrics(context: Context, args: argparse.Namespace) -> int:
    if args.name is None:
        reply = context.client.raw("metrics.text")
        return context.show(reply, MetricsText, lambda page: print(page.text, end=""))
    reply = context.client.raw("instance.metrics", NameParams(name=args.name))
    return context.show(reply, MetricsReply, _show_metrics)


def _show_metrics(reply: MetricsReply) -> None:
    told = reply.metrics
    rows = (
        ("requestsRunning", "requests running", told.requests_running, 1.0, ""),
        ("requestsWaiting", "requests waiting", told.requests_waiting, 1.0, ""),
        ("kvCacheUtilization", "KV cache used", told.kv_cache_utilization, 100.0, " %"),
        ("promptTokensTotal", "prompt tokens", told.prompt_tokens_total, 1.0, ""),
        ("generationTokensTotal", "generated tokens", told.generation_tokens_total, 1.0, ""),
    )
    for name, label, value, scale, unit in rows:
        unknown = UNSUPPORTED if name in reply.unsupported else NOT_KNOWN
        text = unknown if value is None else f"{value * scale:.16g}{unit}"
        say(f"{label:<17} {text}")
    if reply.unavailable is not UNSET:
        warn(f"{printable(reply.name)}: {printable(reply.unavailable)}")


def _show_instances(listing: InstanceListing) -> None:
    head = ("NAME", "ENGINE", "STATE", "PORT", "DEVICES", "PID", "AGE", "REASON")
    say(table(head, map(_instance, listing.instances)))
    for left in listing.unreadable or ():
        holds = "all devices that nobody claims" if left.devices is None else _devices(left.devices)
        pids = f", alive: pid {', '.join(map(str, left.pids))}" if left.pids else ""
        name = printable(left.name)
        warn(
            f"{name}: its record cannot be read ({printable(left.reason)}); it keeps "
            f"{printable(holds)}{pids}\n"
            f"Once its engine is gone, `enginectl release {name}` frees them."
        )


def _instance(view: InstanceView) -> tuple[str, ...]:
    record = view.record
    return (
        record.name,
        record.engine,
        view.state,
        str(record.port) if record.port else "-",
        _devices(record.devices),
        _pid(view),
        age(record.started_at),
        reason_of(view),
    )


def _pid(view: InstanceView) -> str:
    """Of the process that runs; the pid of one that has ended may be another's by now."""
    ref = view.record.ref
    return str(ref.pid) if isinstance(ref, ProcessHandle) and view.state != "exited" else "-"


def reason_of(view: InstanceView) -> str:
    """Why it is not simply ready: the newest failure, and when it will be tried again."""
    if isinstance(view.record.ref, PinnedHandle):
        return f"pinned for {view.record.ref.holder}"
    told = [] if view.failure is None else [_cause(view.failure)]
    if view.retry_at is not None:
        told.append(f"attempt {view.attempt} {until(view.retry_at)}")
    if told:
        return ", ".join(told)
    if view.stop_asked:
        return "stopped" if view.state == "exited" else "stopping"
    if view.exit is not None:
        code = view.exit.exit_code
        how = view.exit.signal or (NOT_KNOWN if code is None else f"exit {code}")
        return f"{how} ({view.exit.diagnosis.code})" if view.exit.diagnosis else how
    return (view.health.last or "") if view.state == "unhealthy" else ""


def _cause(failure: LaunchFailure) -> str:
    kind = str(failure.__struct_config__.tag)
    match failure:
        case SpawnFailed(reason=str() as reason):
            return f"{kind} ({reason})"
        case ExitedEarly() | UnhealthyTimeout():
            return f"{kind} ({failure.diagnosis.code})" if failure.diagnosis else kind
        case _:
            return kind


def _devices(devices: tuple[str, ...]) -> str:
    if len(devices) > _SHOWN_DEVICES:
        return f"{len(devices)} devices"
    return ",".join(devices) or "-"


def _show_engines(listing: EngineListing) -> None:
    head = ("ENGINE", "RUNS HERE", "PORT", "PROGRAM")
    say(table(head, map(_engine, listing.engines)))


def _engine(entry: EngineEntry) -> tuple[str, ...]:
    support = entry.support
    runs = ",".join(support.runtimes or ()) if support.ok else f"no: {support.reason or ''}"
    needs = f"; needs {support.needs}" if support.needs else ""
    absent = f"not found: {entry.default_binary}{needs}" if support.ok else "-"
    program = entry.installed or absent
    if entry.version:
        program += f" ({entry.version})"
    return entry.id, runs, str(entry.default_port or "-"), program
