"""The contract types against the seed, member for member.

The tables are written from ``compute-contracts.txt``, not from our code. A member is
``name:type``; ``name?`` is optional; ``number`` is any number; ``a/b`` are the strings it may be;
``[T]`` is a list, ``{T}`` a map to T, ``|null`` nullable, ``Capital`` another struct. What we added
and where we deviate stands beside the seed's own, for both are decisions of record.
"""

from dataclasses import fields
from typing import Any, get_args

import msgspec
import pytest

from supervisor.contracts import device, engine, event, failure, host, instance

ENGINES = "exllamav3/llamacpp/mlx/sglang/vllm"
RUNTIMES = "docker/process"
ACCELERATORS = "cpu/cuda/metal/rocm/xpu"
PLATFORMS = "darwin/linux/win32"
FAILURE_TYPES = (
    "UnsupportedFailure+AlreadyRunning+NoCapacity+InstallFailed+SpawnFailed+ExitedEarly"
    "+UnhealthyTimeout+Cancelled"
)
HANDLES = "ProcessHandle+DockerHandle+RemoteHandle+PinnedHandle"

SEED: dict[type[msgspec.Struct], str] = {
    host.HostProfile: f"""nodeId:string platform:{PLATFORMS} arch:arm64/x64
        accelerator:{ACCELERATORS} unifiedMemory:boolean wsl:boolean docker:boolean
        dockerGpu:boolean deviceCount:number""",
    engine.HealthCheck: "path:string readyDeadlineMs:number intervalMs:number",
    engine.PortBinding: "container:number host:number",
    engine.Mount: "from:string to:string readOnly:boolean",
    engine.LaunchPlan: f"""kind:{RUNTIMES} argv:[string] image?:string env:{{string}}
        ports:[PortBinding] mounts:[Mount] devices:[string] workdir?:string health:HealthCheck""",
    engine.LaunchRequest: f"""engine:{ENGINES} host:HostProfile runtime:{RUNTIMES}
        devices:[string] port:number modelPath:string servedModelName:string
        options:ServingOptions extraArgs:[string] env:{{string}} dockerImage:string|null
        binary:string""",
    instance.ProcessHandle: "kind:process pid:number startToken:string|null",
    instance.DockerHandle: "kind:docker container:string",
    instance.RemoteHandle: "kind:remote nodeId:string name:string",
    instance.PinnedHandle: "kind:pinned holder:string",
    instance.InstanceRecord: f"""name:string nodeId:string engine:{ENGINES} recipeId:string
        runtime:{RUNTIMES} ref:{HANDLES}|null port:number devices:[string] nonce:string
        startedAt:string readyDeadlineAt:string""",
    device.AcceleratorInfo: f"""id:string index:number vendor:amd/apple/intel/nvidia/unknown
        name:string accelerator:{ACCELERATORS} unifiedMemory:boolean utilizationPct:number|null
        temperatureC:number|null powerWatts:number|null powerLimitWatts:number|null
        driver:string|null""",
    device.HostInfo: f"""cpuModel:string cpuCount:number memoryTotalBytes:number
        memoryAvailableBytes:number swapTotalBytes:number|null platform:{PLATFORMS}
        arch:arm64/x64 release:string uptimeSeconds:number""",
    device.VolumeInfo: """mount:string filesystem:string|null model:string|null
        rotational:boolean|null""",
    device.ThermalInfo: "label:string celsius:number source:chassis/cpu/gpu",
    device.DeviceSnapshot: """sampledAt:string accelerators:[AcceleratorInfo] host:HostInfo
        storage:[VolumeInfo] thermals:[ThermalInfo]
        capabilities:[hostMemory/memory/power/storage/temperature/utilization]""",
    failure.UnsupportedFailure: f"kind:unsupported engine:{ENGINES} reason:string",
    failure.AlreadyRunning: "kind:already-running name:string",
    failure.NoCapacity: "kind:no-capacity need:number free:number",
    failure.InstallFailed: f"kind:install-failed engine:{ENGINES} detail:string",
    failure.SpawnFailed: "kind:spawn-failed detail:string",
    failure.ExitedEarly: """kind:exited-early exitCode:number|null signal:string|null
        logTail:string""",
    failure.UnhealthyTimeout: "kind:unhealthy-timeout waitedMs:number logTail:string",
    failure.Cancelled: "kind:cancelled",
    # Required in the seed, optional here (design section 4): a knob left out emits nothing.
    engine.ServingOptions: """tensorParallel?:number pipelineParallel?:number
        maxContextLength?:number memoryFraction?:number maxConcurrentRequests?:number
        kvCacheDtype?:string|null dtype?:string|null quantization?:string|null
        trustRemoteCode?:boolean toolCallParser?:string|null reasoningParser?:string|null""",
}

REASONS = (
    "binary-missing/denied/disk-full/image/log-unwritable/model-missing/not-executable/port-taken"
    "/workdir-missing"
)
OURS: dict[type[msgspec.Struct], str] = {
    engine.HealthCheck: "timeoutMs?:number unhealthyAfter?:number ready?:ReadyRequest "
    "deep?:ReadyRequest",
    engine.LaunchPlan: """bindHost?:string shmBytes?:number ulimits?:{number} groups?:[number]
        deviceRequests?:[DeviceRequest] deviceNodes?:[string] securityOpts?:[string]""",
    engine.LaunchRequest: "readyLimitMs?:number hostNetwork?:boolean",
    engine.EngineSupport: "needs?:string without?:{string}",
    failure.AlreadyRunning: "detail?:string",
    instance.ProcessHandle: "pidfdInode?:number",
    instance.InstanceRecord: "supervision?:Supervision",
    # The seed has plain numbers: a discrete card may refuse to say, and null is no zero.
    device.AcceleratorInfo: """memoryTotalBytes:number|null memoryUsedBytes:number|null
        access?:DeviceAccess topology?:DeviceTopology processes?:[DeviceProcess]
        ageMs?:number""",
    # The seed has plain numbers: a server that hangs tells none.
    device.VolumeInfo: "totalBytes:number|null freeBytes:number|null",
    device.DeviceSnapshot: "probes?:[ProbeReport] lost?:[LostDevice]",
    # The seed knows one container engine: of two on one socket, only one can have the container.
    instance.DockerHandle: "daemon?:string",
    failure.NoCapacity: "needBytes?:number freeBytes?:number detail?:string",
    failure.SpawnFailed: f"reason?:{REASONS} diagnosis?:Diagnosis",
    failure.ExitedEarly: "detail?:string diagnosis?:Diagnosis",
    failure.UnhealthyTimeout: "lastProbe?:string diagnosis?:Diagnosis",
}

EVENT_KINDS = """
    supervisor-started supervisor-stopping config-reloaded reserved launching spawned phase ready
    unhealthy recovered launch-failed stopping stopped stop-incomplete exited restarting gave-up
    adopted reaped swept record-quarantined device-lost device-found member-lost port-changed
    task-crashed warning pinned released install-progress installed install-failed journal-gap
    node-joined node-lost
"""


def members(struct: type[msgspec.Struct]) -> set[str]:
    """The members of a struct in the tables' notation, from the JSON schema msgspec exports."""
    _, parts = msgspec.json.schema_components([struct], ref_template="{name}")
    schema = parts[struct.__name__]
    required = schema.get("required", [])
    return {
        f"{name}{'' if name in required else '?'}:{notation(part)}"
        for name, part in schema["properties"].items()
    }


def notation(schema: dict[str, Any]) -> str:
    match schema:
        case {"$ref": name}:
            return str(name)
        case {"enum": choices}:
            return "/".join(sorted(choices))
        case {"anyOf": [*parts, {"type": "null"}]}:
            return "+".join(map(notation, parts)) + "|null"
        case {"anyOf": parts}:
            return "+".join(map(notation, parts))
        case {"type": "array", "items": item}:
            return f"[{notation(item)}]"
        case {"type": "object", "additionalProperties": dict(item)}:
            return f"{{{notation(item)}}}"
        case {"type": "integer" | "number"}:
            return "number"
        case {"type": name}:
            return str(name)
    raise AssertionError(schema)


@pytest.mark.parametrize("struct", SEED, ids=lambda struct: struct.__name__)
def test_a_struct_is_the_seeds(struct: type[msgspec.Struct]) -> None:
    assert members(struct) == set(SEED[struct].split()) | set(OURS.get(struct, "").split())


@pytest.mark.parametrize(
    ("ours", "seeds"),
    [
        (engine.EngineId, "vllm sglang llamacpp mlx exllamav3"),
        (engine.EngineRuntimeKind, "process docker"),
        (
            engine.CanonicalMetric,
            "requestsRunning requestsWaiting kvCacheUtilization promptTokensTotal "
            "generationTokensTotal",
        ),
        (host.Accelerator, "cuda rocm metal xpu cpu"),
        (host.HostPlatform, "linux darwin win32"),
        (host.HostArch, "x64 arm64"),
        (instance.InstanceState, "reserving starting ready unhealthy exited"),
        (
            device.TelemetryField,
            "memory utilization temperature power storage hostMemory",
        ),
        (device.DeviceVendor, "nvidia amd apple intel unknown"),
    ],
)
def test_a_list_of_words_is_the_seeds_in_its_order(ours: Any, seeds: str) -> None:
    assert list(get_args(ours)) == seeds.split()


def test_engine_ids_are_in_the_seeds_order() -> None:
    assert get_args(engine.EngineId) == engine.ENGINE_IDS


def test_failures_are_in_the_seeds_order() -> None:
    assert "+".join(kind.__name__ for kind in get_args(failure.LaunchFailure)) == FAILURE_TYPES


def test_there_is_every_kind_of_event_and_no_other() -> None:
    tags = [kind.__struct_config__.tag for kind in get_args(event.Event)]
    assert tags == EVENT_KINDS.split()
    assert {kind.__struct_config__.tag_field for kind in get_args(event.Event)} == {"kind"}


def test_engine_support_is_told_apart_by_ok() -> None:
    yes = msgspec.to_builtins(engine.EngineSupport.supported("process", "docker"))
    no = msgspec.to_builtins(engine.EngineSupport.unsupported("no GPU"))
    assert yes == {"ok": True, "runtimes": ("process", "docker")}
    assert no == {"ok": False, "reason": "no GPU"}


@pytest.mark.parametrize(
    "mixed",
    ['{"ok":true}', '{"ok":false}', '{"ok":true,"reason":""}', '{"ok":false,"runtimes":[]}'],
)
def test_engine_support_is_nothing_in_between(mixed: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(mixed, type=engine.EngineSupport)


def test_the_launch_spec_has_the_seeds_members() -> None:
    names = {field.name for field in fields(engine.ComputeEngineSpec)}
    seeds = "id supports plan health metrics image default_binary default_port"
    assert names >= set(seeds.split())


def test_a_record_tolerates_what_it_does_not_know_and_a_request_does_not() -> None:
    handle = msgspec.json.decode('{"kind":"docker","container":"c","x":1}', type=_Handle)
    assert handle == instance.DockerHandle(container="c")
    with pytest.raises(msgspec.ValidationError, match="unknown field `x`"):
        msgspec.json.decode('{"name":"a","x":1}', type=instance.LaunchParams)


_Handle: Any = instance.HandleReference
