"""Launch requests for tests: one ordinary request, and changes to it in the wire's own words."""

from collections.abc import Mapping
from typing import Any

import msgspec

from supervisor.contracts.engine import LaunchRequest
from supervisor.contracts.host import Accelerator, DeviceId, HostProfile
from supervisor.engines.llamacpp import SPEC

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


def request(**changes: Any) -> LaunchRequest:
    """The ordinary request with these members instead; members of ``host`` may be given alone."""
    host = BASE["host"] | changes.pop("host", {})
    return msgspec.convert({**BASE, **changes, "host": host}, LaunchRequest)


def host(**changes: Any) -> HostProfile:
    return request(host=changes).host


def argv(launch: LaunchRequest) -> list[str]:
    """The planned command line after the program."""
    return list(SPEC.plan(launch).argv[1:])
