"""Records and devices with everything but the point of a test filled in."""

from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from supervisor.contracts.device import AcceleratorInfo, DeviceAccess, DeviceTopology
from supervisor.contracts.engine import HealthCheck, LaunchPlan
from supervisor.contracts.host import Accelerator
from supervisor.contracts.instance import (
    RECORD_SCHEMA,
    InstanceRecord,
    LaunchParams,
    ProcessHandle,
    Supervision,
    Tombstone,
)

BOOT = "11111111-2222-3333-4444-555555555555"
PROCESS = ProcessHandle(pid=4242, start_token=f"{BOOT}:777")
GIB = 1 << 30


def a_record(name: str = "qwen", *, bare: bool = False, **changes: Any) -> InstanceRecord:
    """A running instance. ``changes`` are members of the record or of its supervision; a ``bare``
    one has only what the seed knows.
    """
    supervision = Supervision(
        schema_version=RECORD_SCHEMA,
        boot_id=BOOT,
        supervisor_id="0123456789abcdef",
        launch=LaunchParams(name=name, engine="vllm", model_path="/m"),
        intent="running",
        attempt=1,
        exclusive=True,
        bind_host="127.0.0.1",
    )
    inner = {key: changes.pop(key) for key in list(changes) if key in supervision.__struct_fields__}
    members: dict[str, Any] = {
        "node_id": "self",
        "engine": "vllm",
        "recipe_id": name,
        "runtime": "process",
        "ref": PROCESS,
        "port": 21_000,
        "devices": ("GPU-a",),
        "nonce": f"nonce-of-{name}",
        "started_at": "2026-01-01T00:00:00.000Z",
        "ready_deadline_at": "2026-01-01T00:10:00.000Z",
        "supervision": UNSET if bare else replace(supervision, **inner),
    }
    return InstanceRecord(name=name, **(members | changes))


def a_plan(**health: Any) -> LaunchPlan:
    check = HealthCheck(path="/health", ready_deadline_ms=1000, interval_ms=100, **health)
    return LaunchPlan(
        kind="process", argv=("x",), env={}, ports=(), mounts=(), devices=(), health=check
    )


def a_tombstone(record: InstanceRecord, ended_at: str = "2026-01-02T00:00:00.000Z") -> Tombstone:
    return Tombstone(record=record, ended_at=ended_at, failure=None, exit=None)


def a_device(
    name: str,
    accelerator: Accelerator = "cuda",
    *,
    index: int = 0,
    memory: int | None = 24 * GIB,
    unified: bool = False,
    used: int | None = None,
    parent: str | None = None,
    topology: DeviceTopology | UnsetType = UNSET,
) -> AcceleratorInfo:
    return AcceleratorInfo(
        id=name,
        index=index,
        vendor="unknown",
        name=name,
        accelerator=accelerator,
        memory_total_bytes=memory,
        memory_used_bytes=used,
        unified_memory=unified,
        utilization_pct=None,
        temperature_c=None,
        power_watts=None,
        power_limit_watts=None,
        driver=None,
        access=DeviceAccess(parent=parent) if parent else UNSET,
        topology=topology,
    )
