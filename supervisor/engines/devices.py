"""From leased devices to what an engine gets to see of them, in one place for every engine.

A device is known by a stable id, and engines number devices at will; so wherever a vendor's runtime
takes ids it gets ids, full and comma-joined. A launch's own variables and flags may only pick among
the leased devices.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from supervisor.contracts.engine import EngineRuntimeKind, LaunchPlan
from supervisor.contracts.host import Accelerator, DeviceId
from supervisor.engines.words import flag_values

DEVICE_VARIABLES: frozenset[str] = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        *("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
        *("ZE_AFFINITY_MASK", "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "ZE_FLAT_DEVICE_HIERARCHY"),
        *("ONEAPI_DEVICE_SELECTOR", "SYCL_DEVICE_FILTER"),
    }
)
"""Masks of every vendor. None of them reaches an engine but by ``apply_devices``."""

NO_DEVICE: Mapping[str, str] = {
    # Set but empty hides every device of CUDA, ROCm (ROCr's RvdFilter) and Vulkan (ggml-vulkan).
    "CUDA_VISIBLE_DEVICES": "",
    "ROCR_VISIBLE_DEVICES": "",
    "GGML_VK_VISIBLE_DEVICES": "",
    "ONEAPI_DEVICE_SELECTOR": "*:cpu",
    # Metal knows no mask, and llama.cpp would take it unasked.
    "LLAMA_ARG_DEVICE": "none",
}
"""What keeps an engine off the GPUs of a host where it has leased none."""

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
_AMD_UNIQUE_ID = re.compile(r"amd:(?:0x)?([0-9a-fA-F]{1,16})")


def apply_devices(plan: LaunchPlan, accelerators: Mapping[DeviceId, Accelerator]) -> LaunchPlan:
    """The plan with the variables that show the engine its leased devices and no other.

    ``accelerators`` names every device of the host, the leased ones at least (else ``KeyError``):
    an Intel device has no id that its runtime takes, only its place among them. A container sees
    what its launcher passes in, numbered anew, so there a mask of the host's would be wrong.
    """
    written = _selection(plan.devices, accelerators, plan.kind)
    env = {name: value for name, value in plan.env.items() if name not in DEVICE_VARIABLES}
    for name, value in written.items():
        own = plan.env.get(name)
        env[name] = own if own is not None and _within(name, own, value) else value
    return replace(plan, env=env)


def lease_violation(
    extra_args: Sequence[str],
    env: Mapping[str, str],
    devices: Sequence[DeviceId],
    accelerators: Mapping[DeviceId, Accelerator],
    runtime: EngineRuntimeKind = "process",
) -> str | None:
    """Why a launch's own words would leave its lease, in a sentence; ``None`` if they do not."""
    written = _selection(devices, accelerators, runtime)
    for name, value in env.items():
        masks = name in DEVICE_VARIABLES or name in written
        if masks and not (name in written and _within(name, value, written[name])):
            return _sentence(f"the variable {name}", value, devices)
        if name in _PICKING_VARIABLES and not _picks_within(value, devices, accelerators):
            return _sentence(f"the variable {name}", value, devices)
    for flag, value in flag_values(extra_args):
        if flag in _PHYSICAL and not {item.strip() for item in value.split(",")} <= set(devices):
            return _sentence(flag, value, devices)
        if flag in _PICKING and not _picks_within(value, devices, accelerators):
            return _sentence(flag, value, devices)
    return None


def _selection(
    devices: Sequence[DeviceId],
    accelerators: Mapping[DeviceId, Accelerator],
    runtime: EngineRuntimeKind,
) -> dict[str, str]:
    by_kind: dict[Accelerator, list[DeviceId]] = {}
    for device in devices:
        by_kind.setdefault(accelerators[device], []).append(device)
    cuda, rocm, xpu = (by_kind.get(kind, []) for kind in ("cuda", "rocm", "xpu"))
    if runtime == "docker":
        # Where NVIDIA's runtime is docker's default, an image's own variable would pass in all.
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if cuda else {"NVIDIA_VISIBLE_DEVICES": "void"}
    if not by_kind.keys() - {"cpu"}:
        return dict(NO_DEVICE)
    env: dict[str, str] = {}
    if cuda:
        # The order matters where a launch numbers devices; FASTEST_FIRST is no order of ours.
        env |= {"CUDA_VISIBLE_DEVICES": ",".join(cuda), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if rocm:
        # The one AMD variable that takes ids; HIP's would number within what this one shows.
        env["ROCR_VISIBLE_DEVICES"] = ",".join(_rocr(device, accelerators) for device in rocm)
    if xpu:
        # Numbers in PCI order, of whole cards rather than of their tiles.
        places = sorted(_place(device, accelerators) for device in xpu)
        env |= {
            "ZE_AFFINITY_MASK": ",".join(map(str, places)),
            "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
            "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
        }
    return env


def _rocr(device: DeviceId, accelerators: Mapping[DeviceId, Accelerator]) -> str:
    """ROCr's name for a device: by its unique id, else by its place in PCI order."""
    if unique := _AMD_UNIQUE_ID.fullmatch(device):
        return f"GPU-{unique[1].lower():0>16}"
    return str(_place(device, accelerators)) if device.startswith("amd:") else device


def _place(device: DeviceId, accelerators: Mapping[DeviceId, Accelerator]) -> int:
    """Among all devices of its kind; ids that are PCI addresses sort as the bus does."""
    kind = accelerators[device]
    return sorted(other for other, its in accelerators.items() if its == kind).index(device)


def _within(name: str, own: str, written: str) -> bool:
    """A launch may narrow or reorder a mask, and choose CUDA's order: ids mean the same in any."""
    return name == "CUDA_DEVICE_ORDER" or set(own.split(",")) <= set(written.split(","))


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
