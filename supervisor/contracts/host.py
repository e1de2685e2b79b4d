"""What a host is: its platform, its accelerator, and what it can do with containers."""

from typing import Literal

from supervisor.contracts._base import Fact

Accelerator = Literal["cuda", "rocm", "metal", "xpu", "cpu"]
"""The family of a compute device; a launch plan speaks of one family only."""

HostPlatform = Literal["linux", "darwin", "win32"]
HostArch = Literal["x64", "arm64"]

NodeId = str
"""``"self"`` is this host, always; another host goes by the id it registered with."""

DeviceId = str
"""Stable over reboots: a vendor UUID or PCI address, or a made-up id (``metal:0``, ``cpu:0``).

Never a bare index, for those are handed out anew at every boot.
"""

SELF: NodeId = "self"


class HostProfile(Fact, frozen=True, kw_only=True):
    """The facts of a host that decide which engines it can run, and how."""

    node_id: NodeId
    platform: HostPlatform
    arch: HostArch
    accelerator: Accelerator
    unified_memory: bool
    """The device's memory is the host's own (Apple silicon, GB10): one budget, not two."""
    wsl: bool
    docker: bool
    """The container engine's API answered."""
    docker_gpu: bool
    """A container was proved to reach the GPU; on macOS never true."""
    device_count: int
    """Accelerators that can be leased, ``cpu:0`` not counted."""
