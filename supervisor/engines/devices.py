"""From leased devices to what an engine gets to see of them, in one place for every engine.

A device is known by a stable id, and engines number devices at will; so wherever a vendor's runtime
takes ids it gets ids, full and comma-joined. Where it takes numbers only, they are places in the
order of the bus, and the runtime is told to count in that order (``places.py`` for engines that
take none). What a launch's own variables and flags may say beside it is in ``picking.py``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.device import DeviceAccess
from supervisor.contracts.engine import DeviceRequest, EngineRuntimeKind, LaunchPlan, Mount
from supervisor.contracts.host import Accelerator, DeviceId

DEVICE_VARIABLES: frozenset[str] = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        *("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
        *("ZE_AFFINITY_MASK", "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "ZE_FLAT_DEVICE_HIERARCHY"),
        *("ONEAPI_DEVICE_SELECTOR", "SYCL_DEVICE_FILTER", "GGML_VK_VISIBLE_DEVICES"),
        *("MUSA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES"),
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

_AMD_UNIQUE_ID = re.compile(r"amd:(?:0x)?([0-9a-fA-F]{1,16})")

KFD = "/dev/kfd"
DRI = "/dev/dri"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The devices of one launch, among all of the host's."""

    devices: Sequence[DeviceId]
    accelerators: Mapping[DeviceId, Accelerator]
    """Every device of the host, the leased ones at least."""
    access: Mapping[DeviceId, DeviceAccess] = field(default_factory=dict)
    """How each is reached, as far as the probes know."""

    def of(self, kind: Accelerator) -> list[DeviceId]:
        """The leased ones of a kind, in the lease's order."""
        return [device for device in self.devices if self.accelerators[device] == kind]

    def place(self, device: DeviceId) -> int | None:
        """Among all whole devices of its kind on the bus; ``None`` where that cannot be told."""
        kind = self.accelerators[device]
        others = [other for other, its in self.accelerators.items() if its == kind]
        if any(self._reach(other).parent == device for other in others):
            return None  # it is cut into slices, which have the number's place
        whole = [other for other in others if self._reach(other).parent is None]
        if device not in whole:
            return None
        if (told := self._reach(device).place) is not None:
            return told  # which counts the devices that a mask of the daemon's own hides
        addresses = [self._reach(other).pci_address or _address(other) for other in whole]
        if len(whole) > 1 and not all(addresses):
            return None
        order = sorted(zip(addresses, whole, strict=True), key=lambda pair: pair[0] or "")
        return [other for _, other in order].index(device)

    def _reach(self, device: DeviceId) -> DeviceAccess:
        return self.access.get(device) or _UNKNOWN

    def reach(self, devices: Iterable[DeviceId]) -> list[DeviceAccess]:
        """How these are reached, in order."""
        return [self._reach(device) for device in devices]


_UNKNOWN = DeviceAccess()


def apply_devices(
    plan: LaunchPlan,
    accelerators: Mapping[DeviceId, Accelerator],
    access: Mapping[DeviceId, DeviceAccess] | None = None,
) -> LaunchPlan:
    """The plan with what shows the engine its leased devices and no other.

    ``accelerators`` names every device of the host, the leased ones at least (else ``KeyError``). A
    process gets variables. A container gets devices passed in, numbered anew there, so that a mask
    of the host's would be wrong in it.
    """
    lease = Lease(devices=plan.devices, accelerators=accelerators, access=access or {})
    written = selection(lease, plan.kind)
    env = {name: value for name, value in plan.env.items() if name not in DEVICE_VARIABLES}
    for name, value in written.items():
        own = plan.env.get(name)
        env[name] = own if own is not None and within(name, own, value) else value
    plan = replace(plan, env=env)
    return _passed_in(plan, lease) if plan.kind == "docker" else plan


def selection(lease: Lease, runtime: EngineRuntimeKind) -> dict[str, str]:
    """The variables that a lease comes to."""
    cuda, rocm, xpu = (lease.of(kind) for kind in ("cuda", "rocm", "xpu"))
    if runtime == "docker":
        return _inside(lease)
    if all(lease.accelerators[device] == "cpu" for device in lease.devices):
        return dict(NO_DEVICE)
    env: dict[str, str] = {}
    if cuda:
        # The order matters where devices are numbered; FASTEST_FIRST is no order of ours.
        env |= {
            "CUDA_VISIBLE_DEVICES": ",".join(map(_cuda, cuda)),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
    if rocm:
        env |= _rocm(lease, rocm)
    if xpu:
        env |= _xpu(lease, xpu)
    return env


def within(name: str, own: str, written: str) -> bool:
    """A launch may narrow or reorder a mask, and choose CUDA's order: ids mean the same in any."""
    return name == "CUDA_DEVICE_ORDER" or set(own.split(",")) <= set(written.split(","))


def _cuda(device: DeviceId) -> str:
    """Without NVML a Jetson's one GPU has no id but a number."""
    return device.removeprefix("tegra:")


def _rocm(lease: Lease, devices: Sequence[DeviceId]) -> dict[str, str]:
    """The one AMD variable that takes ids; HIP's would number within what this one shows."""
    return {"ROCR_VISIBLE_DEVICES": ",".join(_rocr(lease, device) for device in devices)}


def _rocr(lease: Lease, device: DeviceId) -> str:
    """ROCr's name for a device: by its unique id, else by its place in PCI order."""
    if unique := _AMD_UNIQUE_ID.fullmatch(device):
        return f"GPU-{unique[1].lower():0>16}"
    place = lease.place(device) if device.startswith("amd:") else None
    return device if place is None else str(place)


def _xpu(lease: Lease, devices: Sequence[DeviceId]) -> dict[str, str]:
    """Numbers in PCI order, of whole cards rather than of their tiles."""
    places = sorted(place for device in devices if (place := lease.place(device)) is not None)
    return {
        "ZE_AFFINITY_MASK": ",".join(map(str, places)),
        "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
        "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
    }


def _address(device: DeviceId) -> str | None:
    """Of ids that are made of one."""
    vendor, _, address = device.partition(":")
    return address if vendor in ("amd", "intel") and address.count(":") == 2 else None


def _inside(lease: Lease) -> dict[str, str]:
    """In a container nothing is masked that is not there; but see ``_unsorted``."""
    cuda, rocm, xpu = (lease.of(kind) for kind in ("cuda", "rocm", "xpu"))
    env: dict[str, str] = {}
    if cuda:
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if not cuda or _cdi(lease, cuda):
        # Where NVIDIA's runtime is docker's default, an image's own variable would pass in all.
        env["NVIDIA_VISIBLE_DEVICES"] = "void"
    if _unsorted(lease, rocm):
        env |= _rocm(lease, rocm)
    if _unsorted(lease, xpu):
        env |= _xpu(lease, xpu)
    return env


def _unsorted(lease: Lease, devices: Sequence[DeviceId]) -> bool:
    """Of some, nobody knows the files: then all go in, with a mask as a process has it."""
    return any(not access.nodes for access in lease.reach(devices))


def _cdi(lease: Lease, devices: Sequence[DeviceId]) -> tuple[str, ...]:
    names = tuple(access.cdi for access in lease.reach(devices) if access.cdi)
    return names if len(names) == len(devices) else ()


def _passed_in(plan: LaunchPlan, lease: Lease) -> LaunchPlan:
    cuda, rocm, xpu = (lease.of(kind) for kind in ("cuda", "rocm", "xpu"))
    requests: tuple[DeviceRequest, ...] = ()
    if names := _cdi(lease, cuda):
        requests = (DeviceRequest(driver="cdi", device_ids=names),)
    elif cuda:
        requests = (DeviceRequest(driver="", device_ids=tuple(cuda), capabilities=(("gpu",),)),)
    files = [KFD] if rocm else []
    for devices in (rocm, xpu):
        known = [node for access in lease.reach(devices) for node in access.nodes]
        files += [DRI] if _unsorted(lease, devices) else known
    groups = {group for access in lease.reach([*rocm, *xpu]) for group in access.groups}
    # Level Zero finds its cards there by their place on the bus.
    by_path = Mount(from_=f"{DRI}/by-path", to=f"{DRI}/by-path", read_only=True)
    return replace(
        plan,
        device_requests=requests or UNSET,
        device_nodes=tuple(dict.fromkeys(files)) or UNSET,
        groups=tuple(sorted(groups)) or UNSET,
        # ROCm maps memory with calls that docker's profile forbids.
        security_opts=("seccomp=unconfined",) if rocm else UNSET,
        mounts=(*plan.mounts, by_path) if xpu else plan.mounts,
    )
