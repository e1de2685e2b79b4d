"""Launch requests for tests: one ordinary request, and changes to it in the wire's own words."""

from collections.abc import Mapping
from typing import Any

import msgspec

from supervisor.contracts.device import DeviceAccess
from supervisor.contracts.engine import ComputeEngineSpec, EngineId, LaunchRequest
from supervisor.contracts.host import Accelerator, DeviceId, HostProfile
from supervisor.engines.registry import ENGINES

GPU_A = "GPU-11111111-1111-1111-1111-111111111111"
GPU_B = "GPU-22222222-2222-2222-2222-222222222222"

ACCELERATORS: Mapping[DeviceId, Accelerator] = {
    GPU_B: "cuda",
    GPU_A: "cuda",
    "MIG-33333333-3333-3333-3333-333333333333": "cuda",
    "amd:1a2b3c4d5e6f7081": "rocm",
    "amd:0000:c3:00.0": "rocm",
    "intel:0000:03:00.0": "xpu",
    "intel:0000:83:00.0": "xpu",
    "metal:0": "metal",
    "cpu:0": "cpu",
}

ACCESS: Mapping[DeviceId, DeviceAccess] = {
    GPU_B: DeviceAccess(pci_address="0000:41:00.0"),
    GPU_A: DeviceAccess(pci_address="0000:81:00.0"),
    "MIG-33333333-3333-3333-3333-333333333333": DeviceAccess(parent="GPU-elsewhere"),
    "amd:1a2b3c4d5e6f7081": DeviceAccess(
        pci_address="0000:43:00.0",
        nodes=("/dev/dri/renderD128", "/dev/dri/card1"),
        groups=(44, 992),
    ),
    "amd:0000:c3:00.0": DeviceAccess(pci_address="0000:c3:00.0"),
    "intel:0000:83:00.0": DeviceAccess(
        pci_address="0000:83:00.0",
        nodes=("/dev/dri/renderD129", "/dev/dri/card2"),
        groups=(44, 992),
    ),
}
"""As probes tell it; of the second AMD device and the first Intel one no file is known."""

BASE: Mapping[str, Any] = {
    "engine": "llamacpp",
    "host": {
        "nodeId": "self",
        "platform": "linux",
        "arch": "x64",
        "accelerator": "cuda",
        "unifiedMemory": False,
        "wsl": False,
        "docker": True,
        "dockerGpu": True,
        "deviceCount": 2,
    },
    "runtime": "process",
    "devices": [GPU_A],
    "port": 21000,
    "modelPath": "/models/tiny.gguf",
    "servedModelName": "tiny",
    "options": {},
    "extraArgs": [],
    "env": {},
    "dockerImage": None,
    "binary": "/usr/bin/llama-server",
}


_NO_DOCKER = {"docker": False, "dockerGpu": False}
HOSTS: Mapping[str, Mapping[str, Any]] = {
    "linux-x64-cuda": {},
    "linux-x64-cuda-wsl": {"host": {"wsl": True}},
    "linux-arm64-cuda": {"host": {"arch": "arm64"}},
    "linux-arm64-gb10": {"host": {"arch": "arm64", "unifiedMemory": True, "deviceCount": 1}},
    "linux-x64-rocm": {"host": {"accelerator": "rocm"}, "devices": ["amd:1a2b3c4d5e6f7081"]},
    "linux-x64-xpu": {"host": {"accelerator": "xpu"}, "devices": ["intel:0000:83:00.0"]},
    "linux-x64-cpu": {"host": {"accelerator": "cpu", "deviceCount": 0}, "devices": ["cpu:0"]},
    "linux-arm64-cpu": {
        "host": {"accelerator": "cpu", "arch": "arm64", "deviceCount": 0},
        "devices": ["cpu:0"],
    },
    "darwin-arm64-metal": {
        "host": {
            **{"platform": "darwin", "arch": "arm64", "accelerator": "metal"},
            **{"unifiedMemory": True, "deviceCount": 1, **_NO_DOCKER},
        },
        "devices": ["metal:0"],
    },
    "darwin-x64-cpu": {
        "host": {"platform": "darwin", "accelerator": "cpu", "deviceCount": 0, **_NO_DOCKER},
        "devices": ["cpu:0"],
    },
}
"""Hosts of the golden matrix, as changes to the ordinary one."""

OWN: Mapping[EngineId, Mapping[str, str]] = {
    "llamacpp": {},
    "vllm": {"binary": "/opt/vllm/bin/vllm", "modelPath": "/data/qwen3"},
    "sglang": {"binary": "/opt/sglang/bin/sglang", "modelPath": "/data/qwen3"},
    "mlx": {"binary": "/opt/mlx/bin/mlx_lm.server", "modelPath": "/data/qwen3"},
    "exllamav3": {"binary": "/opt/tabbyAPI/venv/bin/python", "modelPath": "/data/qwen3"},
}
"""What the ordinary request of each engine has in place of llama.cpp's program and file."""


def request(**changes: Any) -> LaunchRequest:
    """The ordinary request with these members instead; members of ``host`` may be given alone."""
    host = BASE["host"] | changes.pop("host", {})
    own = OWN[changes.get("engine", "llamacpp")]
    return msgspec.convert({**BASE, **own, **changes, "host": host}, LaunchRequest)


def host(**changes: Any) -> HostProfile:
    return request(host=changes).host


def argv(launch: LaunchRequest) -> list[str]:
    """The planned command line after the program."""
    return list(spec_of(launch).plan(launch).argv[1:])


def spec_of(launch: LaunchRequest) -> ComputeEngineSpec:
    return ENGINES[launch.engine]
