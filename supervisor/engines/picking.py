"""What a launch's own flags and variables may say about devices: pick among the leased ones.

A mask keeps a process inside its lease whatever its flags say; what is refused here would fail late
and far from its cause, or name devices by the host's own numbers.
"""

import re
from collections.abc import Mapping, Sequence

from supervisor.contracts.device import DeviceAccess
from supervisor.contracts.engine import EngineRuntimeKind
from supervisor.contracts.host import Accelerator, DeviceId
from supervisor.engines.devices import DEVICE_VARIABLES, Lease, selection, within
from supervisor.engines.words import flag_values

# Flags that pick devices by name, or by their number among those the engine can see.
_PICKING = frozenset(
    {
        *("-dev", "--device", "-devd", "--device-draft", "--spec-draft-device"),  # llama-server
        *("-mmdev", "--mmproj-device", "-mg", "--main-gpu"),
        *("--base-gpu-id", "--mm-processor-device", "--embeddings-device"),  # sglang, vllm, tabby
    }
)
_PHYSICAL = frozenset({"--device-ids"})
"""vLLM 0.24 and newer: numbers here are the host's own, whatever the mask says."""
_PICKING_VARIABLES = ("LLAMA_ARG_DEVICE", "LLAMA_ARG_MAIN_GPU", "MTMD_BACKEND_DEVICE")

_NUMBERED = re.compile(r"([a-z]*):?([0-9]*)")
_BACKENDS: Mapping[Accelerator, tuple[str, ...]] = {
    "cuda": ("cuda",),
    "rocm": ("rocm", "hip", "cuda"),  # PyTorch calls AMD devices cuda as well
    "metal": ("mtl", "metal", "mps"),
    "xpu": ("sycl", "xpu"),
    "cpu": (),
}
_SHARES = frozenset({"-ts", "--tensor-split"})
"""llama-server: one number for each device."""
_BEGINNINGS = ("--base-gpu-id", "--device-ids", "--mm-processor-device", "--embeddings-device")
"""Of engines that take the beginning of a flag for the flag."""


def lease_violation(
    extra_args: Sequence[str],
    env: Mapping[str, str],
    devices: Sequence[DeviceId],
    accelerators: Mapping[DeviceId, Accelerator],
    runtime: EngineRuntimeKind = "process",
    access: Mapping[DeviceId, DeviceAccess] | None = None,
) -> str | None:
    """Why a launch's own words would leave its lease, in a sentence; ``None`` if they do not."""
    lease = Lease(devices=devices, accelerators=accelerators, access=access or {})
    written = selection(lease, runtime)
    for name, value in env.items():
        masks = name in DEVICE_VARIABLES or name in written
        if masks and not (name in written and within(name, value, written[name])):
            return _sentence(f"the variable {name}", value, devices)
        if name in _PICKING_VARIABLES and not _picks_within(value, devices, accelerators):
            return _sentence(f"the variable {name}", value, devices)
    for said, value in flag_values(extra_args):
        flag = _meant(said)
        if flag in _PHYSICAL and not {item.strip() for item in value.split(",")} <= set(devices):
            return _sentence(said, value, devices)
        if flag in _PICKING and not _picks_within(value, devices, accelerators):
            return _sentence(said, value, devices)
        if flag in _SHARES and len(re.split("[,/]", value)) > max(len(devices), 1):
            return _sentence(said, value, devices)
    return None


def _meant(flag: str) -> str:
    """The picking flag that a flag is the beginning of; else itself."""
    if flag in _PICKING or len(flag) < len("--base"):
        return flag
    return next((whole for whole in _BEGINNINGS if whole.startswith(flag)), flag)


def _picks_within(
    value: str, devices: Sequence[DeviceId], accelerators: Mapping[DeviceId, Accelerator]
) -> bool:
    leased = [device for device in devices if accelerators[device] != "cpu"]
    backends = {name for device in leased for name in _BACKENDS[accelerators[device]]}
    for item in (item.strip() for item in value.split(",")):
        if item.lower() in ("", "none", "auto", "cpu") or item in devices:
            continue
        numbered = _NUMBERED.fullmatch(item.lower())
        if numbered is None or numbered[1] not in {"", *backends}:
            return False
        if int(numbered[2] or 0) >= max(len(leased), 1):
            return False
    return True


def _sentence(what: str, value: str, devices: Sequence[DeviceId]) -> str:
    return (
        f"{what} ({value!r}) would leave the lease, which is {', '.join(devices) or 'no device'}; "
        "choose devices by the launch's devices or deviceCount"
    )
